"""An optional channel of an agent: it is opened in the background, again and again until it can be.

::

    begin ── opened? ──no──▶ away ── 3 s, 6 s … a minute ──▶ opened? ── … ──yes──▶ open

Until then whatever uses it is refused: puts are counted as left out, and its sinks are started later. An open one may
be away, too: then its sinks try again. Neither is trouble: the agent works without it. Whatever a sink asks of its
channel is asked within `asking`, whose `ChannelAwayError` alone says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.error_text import text_of
from spillable_stream.errors import ChannelBusyError, ChannelError, LockTimeoutError, StorageError
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["ChannelAwayError", "LateChannel", "asking", "is_open", "is_optional", "require_open"]

_log = log_of("spillable_stream.flow")

_FIRST_RETRY_SECONDS = 3.0
_LONGEST_RETRY_SECONDS = 60.0
_AWAY = (ChannelBusyError, LockTimeoutError, StorageError)


class ChannelAwayError(ChannelError):
    """An optional channel is not open yet, or its storage refuses: its sinks wait for it, and are in no trouble."""


class LateChannel:
    """Stands for a channel, and has all that it has once it is open. Thread-safe.

    Args:
        name: the channel's name.
        open_channel: opens it; it may hang as long as its store does.

    Attributes:
        name: the channel's name.
    """

    def __init__(self, name: str, open_channel: Callable[[], Channel]) -> None:
        self.name: str = name
        self._open_channel = open_channel
        self._channel: Channel | None = None
        self._why = ", but is being opened"
        self._has_tried = self._is_closed = False
        self._is_told = False  # that it is not open
        self._begin_at = float("inf")  # when a thread is sought again, in monotonic seconds
        self._changed = threading.Condition()

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._channel is not None

    def require_open(self) -> Channel:
        """Return the channel.

        Raises:
            ChannelAwayError: it is not open.
        """
        if self._channel is None:
            self._begin_if_due()
            raise ChannelAwayError(f"{self.name} is not open yet{self._why}")
        return self._channel

    def begin(self) -> None:
        """Begin to open it; once. Where the process can have no more threads, a later use of it begins that."""
        try:
            start_thread(threading.Thread(target=self._open, name=f"{self.name}-open", daemon=True))
        except NoThreadError as e:
            self._failed(e)
            self._begin_at = time.monotonic() + _FIRST_RETRY_SECONDS

    def _begin_if_due(self) -> None:
        with self._changed:
            if self._is_closed or time.monotonic() < self._begin_at:
                return
            self._begin_at = float("inf")
        self.begin()

    def wait(self, end: float, must_stop: Callable[[], bool], look_seconds: float) -> None:
        """Wait until the first try to open it has ended, and say so where it has not in time.

        Args:
            end: until when, in monotonic seconds.
            must_stop: whether to wait no longer, looked at again and again.
            look_seconds: how often.
        """
        with self._changed:
            while not (self._has_tried or must_stop()):
                left = end - time.monotonic()
                if left <= 0:
                    self._is_told = True
                    _log.error(
                        "the optional channel %s is still being opened, and the others run without it; check its disk "
                        "or its store",
                        self.name,
                        extra=fields(component=self.name),
                    )
                    return
                self._changed.wait(min(left, look_seconds))

    def _open(self) -> None:
        wait_seconds = _FIRST_RETRY_SECONDS
        while not self._is_closed:
            try:
                channel = self._open_channel()
            except Exception as e:
                self._failed(e)
            else:
                self._found(channel)
                break
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_RETRY_SECONDS)
        if self._is_told and self._channel is not None:
            _log.warning("the optional channel %s is open now", self.name, extra=fields(component=self.name))

    def _found(self, channel: Channel) -> None:
        with self._changed:
            if not self._is_closed:
                self._channel, self._has_tried = channel, True
                self._changed.notify_all()
                return
        try:
            channel.close()
        except Exception as e:
            _log.error(
                "the optional channel %s was opened after its agent had ended, and could not be closed: %s",
                self.name,
                text_of(e),
                extra=fields(component=self.name),
            )

    def _failed(self, e: Exception) -> None:
        with self._changed:
            if self._is_closed:  # it is not tried again
                return
            is_told, self._is_told = self._has_tried, True
            self._why, self._has_tried = f", and is tried again: {text_of(e)}", True
            self._changed.notify_all()
        if not is_told:
            _log.error(
                "the optional channel %s can't be opened, so the others run without it, and what it misses is "
                "counted; it is tried again in %g s, and then once a minute: %s",
                self.name,
                _FIRST_RETRY_SECONDS,
                text_of(e),
                extra=fields(component=self.name, seconds=_FIRST_RETRY_SECONDS),
            )

    def put_transaction(self) -> PutTransaction:
        """See `Channel.put_transaction`.

        Raises:
            ChannelAwayError: it is not open.
        """
        return self.require_open().put_transaction()

    def close(self) -> None:
        """Close it, or open it no more; where it is being opened, it is closed when that has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._channel is not None:
            self._channel.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.require_open(), name)


def is_optional(channel: Channel) -> bool:
    """Tell whether an agent runs without one of its channels."""
    return isinstance(channel, LateChannel)


def is_open(channel: Channel) -> bool:
    """Tell whether a channel of an agent is open: an optional one may not be yet."""
    return not isinstance(channel, LateChannel) or channel.is_open


def require_open(channel: Channel) -> None:
    """Refuse an optional channel that is not open.

    Raises:
        ChannelAwayError: it is not open.
    """
    if isinstance(channel, LateChannel):
        channel.require_open()


@contextmanager
def asking(channel: Channel) -> Iterator[None]:
    """Tell an optional channel that is away from whatever else may fail: what is asked of it is asked in this block.

    Raises:
        ChannelAwayError: it is optional, and not open yet, or its storage refuses or others keep it for too long.
    """
    try:
        yield
    except _AWAY as e:
        if not isinstance(channel, LateChannel):
            raise
        raise ChannelAwayError(f"the optional channel {channel.name} is away: {text_of(e)}") from e
