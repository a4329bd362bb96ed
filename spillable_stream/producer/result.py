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
    """

    successful: bool
    first_id: int = 0
    last_id: int = -1
    reserved_attempts: tuple[Attempt, ...] = ()
    attempt_count: int = 0
    dead_letter: str = ""
    events: Sequence[Any] = ()

    @property
    def write_order_id(self) -> int:
        """The write-order ID of the event, or of the first one."""
        return self.first_id

    @property
    def error_code(self) -> str:
        """The name of the error's class of the last try, "" if it was successful."""
        return self.reserved_attempts[-1].error_code if self.reserved_attempts else ""

    @property
    def error_message(self) -> str:
        """What the error of the last try said."""
        return self.reserved_attempts[-1].error_message if self.reserved_attempts else ""
