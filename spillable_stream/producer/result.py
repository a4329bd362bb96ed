"""What became of a send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Attempt", "Result"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to commit a batch.

    Args:
        successful: whether it was committed.
        time: when the try began, in seconds since 1970.
        error_code: the name of the error's class, such as "ChannelFullError"; "" if there was none.
        error_message: what the error said.
    """

    successful: bool
    time: float
    error_code: str = ""
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one send.

    Args:
        successful: whether the events are in their channel.
        first_id: the write-order ID of the first event; 0 if it is not known.
        last_id: that of the last one; before ``first_id`` if it is not known.
        reserved_attempts: the latest ``max_reserved_attempts`` tries, oldest first.
        attempt_count: how many tries there were.
        dead_letter: the name of the dead-letter channel, if the events are there instead.
        events: the events themselves, as they were sent, if they are nowhere else.
        in_doubt: whether they may be in their channel though it was not successful: an attempt ended without a clear
            answer, or was under way when nobody could wait for it any more.
        reason: the failed try for which they are in the dead-letter channel; None if they are not there.
    """

    successful: bool
    first_id: int = 0
    last_id: int = -1
    reserved_attempts: tuple[Attempt, ...] = ()
    attempt_count: int = 0
    dead_letter: str = ""
    events: Sequence[Any] = ()
    in_doubt: bool = False
    reason: Attempt | None = None

    def with_ids(self, first_id: int, last_id: int) -> Result:
        """Return this result with other IDs: `dataclasses.replace`, in half the time."""
        return Result(
            self.successful,
            first_id,
            last_id,
            self.reserved_attempts,
            self.attempt_count,
            self.dead_letter,
            self.events,
            self.in_doubt,
            self.reason,
        )

    @property
    def write_order_id(self) -> int:
        """The write-order ID of the event, or of the first one."""
        return self.first_id

    @property
    def error_code(self) -> str:
        """The name of the error's class of the last try, or of the `reason`; "" if it was successful."""
        return self._last.error_code if self._last else ""

    @property
    def error_message(self) -> str:
        """What that error said."""
        return self._last.error_message if self._last else ""

    @property
    def _last(self) -> Attempt | None:
        """The last attempt; of dead letters the one for which they are there."""
        return self.reason or (self.reserved_attempts[-1] if self.reserved_attempts else None)
