"""The drain order as a strip of so many cells, whatever the number of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

__all__ = ["strip_cells"]


def strip_cells(drain_order: Sequence[int], cells: int) -> Iterator[bool]:
    """Yield for each cell of a strip whether most of its share of the events are in memory.

    Args:
        drain_order: the lengths of runs of events, those on disk negative; takes start at its left end.
        cells: how many cells the strip has.
    """
    if not drain_order:
        return
    total, begin, at = sum(map(abs, drain_order)), 0, 0
    ends = list(accumulate(map(abs, drain_order)))
    for i in range(cells):
        start, end, in_memory = total * i / cells, total * (i + 1) / cells, 0.0
        while True:
            if drain_order[at] > 0:
                in_memory += max(0.0, min(end, ends[at]) - max(start, begin))
            if ends[at] >= end or at == len(ends) - 1:
                break
            at, begin = at + 1, ends[at]
        yield in_memory * 2 >= end - start
