"""Puts in pieces what is too large for a channel as a whole: no event that fits alone is lost to its neighbours."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spillable_stream.errors import TOO_LARGE

__all__ = ["halves", "put_in_pieces"]


def halves(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return both halves of a batch that is too large for a channel; it has two events or more."""
    middle = batch.num_rows // 2
    return batch.slice(0, middle), batch.slice(middle)


def put_in_pieces(batch: pa.RecordBatch, put: Callable[[pa.RecordBatch, int], object], first: int = 0) -> None:
    """Put a batch, and where that is too large for a channel, its halves, in order.

    Args:
        batch: the events.
        put: puts some of them, whose first has this number in the batch; where it raises that these are too large, none
            of them is stored.
        first: the number of the first event.

    Raises:
        SpillableError: what ``put`` raises; the pieces before are stored. That one is too large, of a single event.
    """
    try:
        put(batch, first)
    except TOO_LARGE:
        if batch.num_rows < 2:
            raise
        one, other = halves(batch)
        put_in_pieces(one, put, first)
        put_in_pieces(other, put, first + one.num_rows)
