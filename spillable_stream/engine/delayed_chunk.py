"""Delayed events, encoded: in parts that belong to one stretch of time each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.format.batch import encode_batch
from spillable_stream.format.dues import dues_frame
from spillable_stream.format.frame import Frame, total_size
from spillable_stream.format.views import without_others
from spillable_stream.state.spill_rules import TierUsage

__all__ = ["FULL_BYTES", "DelayedChunk", "chunks_of", "use_of"]

FULL_BYTES = 16 << 20
"""A side file gets no more after that, so what is read when it is due is bounded."""

_FRAME_BYTES = 256 << 10  # what is read for one event that is due
_FRAME_EVENTS = 4096


class DelayedChunk(NamedTuple):
    """Delayed events that belong to one stretch of time.

    Args:
        begin_ms: where the stretch begins, in milliseconds since 1970.
        width_ms: how long it is.
        first_ms: when the first of the events is due.
        frames: the DUES frame of the events, and their PUT frame.
    """

    begin_ms: int
    width_ms: int
    first_ms: int
    frames: tuple[Frame, Frame]

    @property
    def size_bytes(self) -> int:
        """How much of a file they take."""
        return total_size(self.frames)


def chunks_of(
    dues_ms: Sequence[int],
    batch: pa.RecordBatch,
    schema_id: int,
    ttl_us: int,
    compression: str,
    stretch: Callable[[int], tuple[int, int]],
    puts: Sequence[int] = (),
) -> Iterator[DelayedChunk]:
    """Yield events, encoded, in parts whose events belong to one stretch of time.

    An event is in the stretch that its own due time says, also where the one of the events before it is not over: all
    that are due at once are in one, so their order does not depend on where a part ends.

    Args:
        dues_ms: when each is due, in milliseconds since 1970, ascending.
        batch: the events, in the channel's schema.
        schema_id: its number.
        ttl_us: the ttl of each of them, in microseconds; 0 for none.
        compression: as `encode_batch` takes it.
        stretch: returns the begin and the width of the stretch that an event belongs to, by when it is due.
        puts: the number of each event's put, where they are of several.
    """
    start = 0
    while start < len(dues_ms):
        begin_ms, width_ms = stretch(dues_ms[start])
        until = min(bisect_left(dues_ms, begin_ms + width_ms, lo=start), start + _FRAME_EVENTS)
        if stretch(dues_ms[until - 1]) != (begin_ms, width_ms):  # the last ones belong to a wider one
            belong = partial(_is_beyond, dues_ms, stretch, (begin_ms, width_ms))
            until = bisect_left(range(until), True, lo=start, key=belong)
        count = until - start
        part = without_others(batch.slice(start, count))
        while count > 1 and part.nbytes > _FRAME_BYTES:
            count = (count + 1) // 2
            part = without_others(part.slice(0, count))
        for put in encode_batch(part, schema_id, compression, ttl_us):
            due = dues_ms[start : start + put.count]
            yield DelayedChunk(begin_ms, width_ms, due[0], (dues_frame(due, puts[start : start + put.count]), put))
            start += put.count


def _is_beyond(
    dues_ms: Sequence[int], stretch: Callable[[int], tuple[int, int]], this: tuple[int, int], at: int
) -> bool:
    return stretch(dues_ms[at]) != this


def use_of(chunks: Sequence[DelayedChunk]) -> TierUsage:
    """Return the number of events and the size of their payloads."""
    puts = [chunk.frames[1] for chunk in chunks]
    return TierUsage(sum([put.count for put in puts]), sum([len(put.payload) for put in puts]))
