"""Where a run of events is."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Extent"]


class Extent(NamedTuple):
    """Where a run of events is.

    Args:
        file: a data file's number, or a segment's name.
        offset: where the first frame to look at starts.
        first_id: the first event wanted.
        last_id: the last event wanted.
        base_id: what to add to the frames' IDs: 0 in data files, the first event's ID for segments.
        transaction_id: for segments, the transaction that adopted it.
        time_us: for segments, when it was adopted.
    """

    file: int | str
    offset: int
    first_id: int
    last_id: int
    base_id: int = 0
    transaction_id: int = 0
    time_us: int = 0
