"""Whether channels can hold their parts of a batch: told before any of them has its part."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.counted import counted
from spillable_stream.errors import (
    TOO_LARGE,
    EventTooLargeError,
    PutTooLargeError,
    SpillableError,
    TransactionCapacityError,
)
from spillable_stream.flow.event_batch import concat
from spillable_stream.flow.interceptors.base import Rejected
from spillable_stream.flow.late_channel import is_open
from spillable_stream.format.batch import SURELY_FRAMED_BYTES
from spillable_stream.option_names import named

__all__ = ["PartRoom"]


class PartRoom:
    """Tells which parts of a batch their channels could not hold if they were empty.

    Args:
        channels: the channels by name; one may be added later.
    """

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels

    def require(self, parts: Mapping[str, pa.RecordBatch]) -> None:
        """Refuse a batch that a channel can never hold.

        Args:
            parts: the parts, by the channel's name.

        Raises:
            TransactionCapacityError: a part has more events than a transaction of its channel.
            PutTooLargeError: a part has more events or bytes than its channel.
            EventTooLargeError: an event is larger than a frame of the log can be.
        """
        for name, part in parts.items():
            self._require_transaction(name, part)
            if (error := self._too_large(name, part)) is not None:
                raise error

    def require_of_several(self, parts: Mapping[str, pa.RecordBatch]) -> None:
        """Do what `require` does for the optional parts that have several events, in channels that can say it now."""
        for name, part in parts.items():
            if part.num_rows > 1 and is_open(self._channels[name]):
                try:
                    self.require({name: part})
                except TOO_LARGE:
                    raise
                except SpillableError:  # it is away: the put is refused, too, and counted
                    continue

    def reject_too_large(self, parts: dict[str, pa.RecordBatch], *, except_for: str) -> list[Rejected]:
        """Take events that their channel can never hold out of its part, and return them as rejected by the channel.

        Args:
            parts: the parts, by the channel's name; one that is left without events is removed.
            except_for: a channel whose part stays as it is.
        """
        rejected: list[Rejected] = []
        for name, part in list(parts.items()):
            if name == except_for or self._too_large(name, part) is None:
                continue
            fitting = []
            for event in (part.slice(i, 1) for i in range(part.num_rows)):
                if (error := self._too_large(name, event)) is None:
                    fitting.append(event)
                else:
                    rejected.append(Rejected(event, name, f"{type(error).__name__}: {error}"))
            parts[name] = concat(fitting)
            if not fitting:
                del parts[name]
        return rejected

    def _require_transaction(self, name: str, part: pa.RecordBatch) -> None:
        most = self._channels[name].put_options().transaction_capacity
        if part.num_rows > most:
            option = named("transactionCapacity")
            raise TransactionCapacityError(
                f"a batch has {counted(part.num_rows, 'event')} for the channel {name}, whose {option} is {most:,}: "
                f"send {most:,} at most, or raise {option}"
            )

    def _too_large(self, name: str, part: pa.RecordBatch) -> SpillableError | None:
        """Return why a channel could not hold a part of a batch if it were empty; None if it could."""
        disk_events = self._channels[name].put_options().overflow_capacity
        if part.num_rows <= disk_events and part.nbytes < SURELY_FRAMED_BYTES:
            return None
        try:
            self._channels[name].put_transaction().require_fit(part)
        except (EventTooLargeError, PutTooLargeError) as e:
            return e
        return None
