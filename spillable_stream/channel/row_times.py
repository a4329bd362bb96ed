"""The times of a batch's rows: for how long each counts, and when it is due."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

__all__ = ["UNTIMED", "RowTimes", "TimedRows"]


class TimedRows(NamedTuple):
    """Neighbouring rows that can be put together.

    Args:
        batch: the rows.
        ttl_us: the ttl of each of them, in microseconds; 0 for none.
        dues_ms: when each is due, in milliseconds since 1970; empty for rows that are put now.
    """

    batch: pa.RecordBatch
    ttl_us: int
    dues_ms: Sequence[int]


class RowTimes(NamedTuple):
    """For how long the rows of a batch count, and when they are due: one value for all of them, or an array of values.

    Args:
        ttl_us: in microseconds; 0 for rows that never expire.
        due_ms: in milliseconds since 1970; 0 for rows that are put now.
    """

    ttl_us: int | pa.Int64Array = 0
    due_ms: int | pa.Int64Array = 0

    def has_delays(self) -> bool:
        """Tell whether a row is put later than now."""
        if isinstance(self.due_ms, int):
            return self.due_ms > 0
        import pyarrow.compute as pc  # which takes long: only for a program that needs it

        return bool(len(self.due_ms)) and pc.max(self.due_ms).as_py() > 0

    def and_untimed(self, count: int, more: int) -> RowTimes:
        """Return the times of the rows, which are ``count``, and of ``more`` rows behind them that have none."""
        return RowTimes(*(_followed(value, count, more) for value in self))

    def slice(self, start: int, count: int) -> RowTimes:
        """Return the times of some neighbouring rows.

        Args:
            start: the first of them, from 0.
            count: how many.
        """
        return RowTimes(*(value if isinstance(value, int) else value.slice(start, count) for value in self))

    def divide(self, batch: pa.RecordBatch) -> Iterator[TimedRows]:
        """Yield the rows that are put now, and then those that are due later, each in order, by their ttl."""
        if isinstance(self.due_ms, int):
            yield from _by_ttl(batch, self.ttl_us, self.due_ms)
            return
        import pyarrow.compute as pc

        now = pc.equal(self.due_ms, 0)
        if pc.any(now).as_py():
            yield from _by_ttl(batch.filter(now), _filtered(self.ttl_us, now), 0)
        later = pc.invert(now)
        if pc.any(later).as_py():
            yield from _by_ttl(batch.filter(later), _filtered(self.ttl_us, later), self.due_ms.filter(later))


UNTIMED = RowTimes()
"""Those of rows that are put now and never expire."""


def _followed(value: int | pa.Int64Array, count: int, more: int) -> int | pa.Int64Array:
    if isinstance(value, int):
        if not value:
            return 0
        value = pa.array([value]).take(pa.array([0] * count, pa.int64()))
    return pa.concat_arrays([value, pa.array([0] * more, pa.int64())])


def _filtered(values: int | pa.Int64Array, mask: pa.BooleanArray) -> int | pa.Int64Array:
    return values if isinstance(values, int) else values.filter(mask)


def _by_ttl(batch: pa.RecordBatch, ttl_us: int | pa.Int64Array, due_ms: int | pa.Int64Array) -> Iterator[TimedRows]:
    """Yield rows by their ttl: all that are neighbours and have the same."""
    dues_ms = _numbers(due_ms, batch.num_rows)
    if isinstance(ttl_us, int):
        yield TimedRows(batch, ttl_us, dues_ms)
        return
    import pyarrow.compute as pc

    start = 0
    runs = pc.run_end_encode(ttl_us, run_end_type=pa.int64())
    for end, run_ttl_us in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield TimedRows(batch.slice(start, end - start), run_ttl_us, dues_ms[start:end])
        start = end


def _numbers(due_ms: int | pa.Int64Array, count: int) -> Sequence[int]:
    if isinstance(due_ms, int):
        return array("q", [due_ms]) * count if due_ms else ()
    found = array("q")
    found.frombytes(memoryview(due_ms.buffers()[1])[8 * due_ms.offset : 8 * (due_ms.offset + len(due_ms))])
    return found
