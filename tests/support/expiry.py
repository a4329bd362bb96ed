"""A clock by which events expire, set by a test, and events with a ttl."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from spillable_stream import Channel, Event

__all__ = ["WallClock", "expired", "put_for"]


class WallClock:
    """The wall clock of this process, which a test sets: puts are stamped by it, and expiry is judged by it.

    Args:
        monkeypatch: puts the real one back.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: self.now_ns)

    def pass_by(self, seconds: float) -> None:
        """Let time pass; with a negative number, set the clock back."""
        self.now_ns += round(seconds * 1e9)


def put_for(channel: Channel, ttl: float | timedelta | None, *bodies: bytes) -> None:
    """Put events in one transaction, all with one ttl."""
    with channel.put_transaction() as tx:
        tx.put_many([Event(b) for b in bodies], ttl=ttl)


def expired(channel: Channel, group: str = "default") -> int:
    """Return how many events a group has passed over since they had expired."""
    return channel.stats().groups[group].expired_events
