"""What sources share that can read their input again: a batch has a number, and comes until all channels have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgpack
import pyarrow as pa

from spillable_stream.errors import TOO_LARGE
from spillable_stream.flow.checked_arguments import Count, Size, checked
from spillable_stream.flow.sources.base import BatchProcessor, PolledSource, Status
from spillable_stream.flow.sources.batch_limit import BatchLimit

__all__ = ["InFlightBatch", "NumberedSource", "packed_note", "unpacked_note"]

_NO_TEXT = "surrogateescape"  # for bytes of a path that are not text


def packed_note(value: Mapping[str, object]) -> bytes:
    """Return what a source says of a batch, as the note that goes with it."""
    return bytes(msgpack.packb(value, unicode_errors=_NO_TEXT))


def unpacked_note(note: bytes) -> Mapping[str, Any]:
    """Return what `packed_note` was given; nothing for an empty note."""
    return msgpack.unpackb(note, unicode_errors=_NO_TEXT) if note else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightBatch:
    """A batch that is being put.

    Args:
        batch: its events.
        note: what finds it again after a crash.
        is_repeated: whether some channels have it: then it stays as it is.
    """

    batch: pa.RecordBatch
    note: bytes
    is_repeated: bool = False


InFlight = TypeVar("InFlight", bound=InFlightBatch)


class NumberedSource(PolledSource, Generic[InFlight]):
    """A polled source that can read its input again. One batch at a time is on its way.

    Args:
        batch_size: how many events a batch has at most.
        backoff_sleep_increment: see `PolledSource`.
        max_backoff_sleep: see `PolledSource`.
    """

    numbered = True

    @checked
    def __init__(self, batch_size: Count, backoff_sleep_increment: Size, max_backoff_sleep: Size) -> None:
        super().__init__(backoff_sleep_increment, max_backoff_sleep)
        self._limit = BatchLimit(batch_size)
        self._held: InFlight | None = None
        self._number = 0  # of the batch that is held, or else of the last one

    def poll(self, processor: BatchProcessor) -> Status:
        """Put the next batch, or the one that is held; see `PolledSource.poll`."""
        if self._held is None:
            self._held = self._next()
            if self._held is None:
                self.finished: bool = self._is_at_end()
                return Status.BACKOFF
            self.finished = False
            self._number += 1
            self.counters.received(self._held.batch.num_rows)
        held = self._held
        try:
            with self.counters.storing(held.batch.num_rows):
                processor.process(held.batch, number=self._number, note=held.note)
        except TOO_LARGE:
            if held.is_repeated or held.batch.num_rows == 1:
                raise
            self._go_back(held)
            self._limit.was_too_large(held.batch.num_rows)
            self.counters.will_come_again(held.batch.num_rows)
            self._held, self._number = None, self._number - 1
            return Status.READY
        self._was_stored(held)
        self._held = None
        self._limit.was_stored()
        return Status.READY

    def _next(self) -> InFlight | None:
        """Return the next batch, of as many events as the limit says; None if there is none now."""
        raise NotImplementedError

    def _go_back(self, held: InFlight) -> None:
        """Go back to the beginning of a batch that is too large for a channel: less of it comes next.

        Where it raises, the batch is held still, and nothing has changed.
        """
        raise NotImplementedError

    def _was_stored(self, held: InFlight) -> None:
        """Note that all channels have a batch."""

    def _is_at_end(self) -> bool:
        """Whether all that there is was read, where there is no batch."""
        return True
