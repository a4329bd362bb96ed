"""Channels whose puts fail as they are told to, and an interceptor that fails."""

from __future__ import annotations

from typing import Any

from spillable_stream import Channel, Event
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.errors import ChannelFullError, StorageError
from spillable_stream.flow.interceptors.base import EventInterceptor

LIMITS = {"keep_alive": 0, "overflow_timeout": 0, "checkpoint_on_close": False}


class Upper(EventInterceptor):
    def intercept(self, event: Event) -> Event | None:
        if event.body == b"bad":
            raise ValueError("it is bad")
        return Event(event.body.upper(), event.headers)


class Killed(BaseException):
    """Stands for SIGKILL: what was committed by then stays."""


class Faulty:
    """A channel whose puts fail as the plan says: "full", "before" the commit, "after" it, or "killed"."""

    def __init__(self, channel: Channel, plan: list[str]) -> None:
        self._channel, self._plan = channel, plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def put_transaction(self) -> PutTransaction:
        tx = self._channel.put_transaction()
        fault, commit = (self._plan.pop(0) if self._plan else ""), tx._commit

        def faulty() -> None:
            if fault == "full":
                raise ChannelFullError("it is full")
            if fault == "before":
                raise StorageError("it failed")
            if fault == "killed":
                raise Killed
            commit()
            if fault == "after":
                raise StorageError("the answer is lost")
            if fault == "killed after":
                raise Killed

        tx._commit = faulty  # type: ignore[method-assign]
        return tx
