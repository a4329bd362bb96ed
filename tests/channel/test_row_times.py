"""The times of rows: each keeps its own, and neighbours stay together."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.channel.row_times import RowTimes


def numbered(count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": range(count)}, schema=pa.schema([("n", pa.int64())]))


def divided(times: RowTimes, count: int) -> list[tuple[list[int], int, list[int]]]:
    return [(rows.column("n").to_pylist(), ttl, list(dues)) for rows, ttl, dues in times.divide(numbered(count))]


def column(values: list[int]) -> pa.Array:
    return pa.array([9, *values], pa.int64()).slice(1)  # its first value is not at the buffer's beginning


def test_rows_of_one_time_stay_together() -> None:
    assert divided(RowTimes(), 3) == [([0, 1, 2], 0, [])]
    assert divided(RowTimes(5, 7), 2) == [([0, 1], 5, [7, 7])]


def test_rows_that_are_put_now_come_before_those_that_are_due_later() -> None:
    times = RowTimes(column([1, 1, 0, 1]), column([0, 7, 0, 8]))
    assert divided(times, 4) == [([0], 1, []), ([2], 0, []), ([1, 3], 1, [7, 8])]


def test_times_say_whether_a_row_is_delayed() -> None:
    delayed = [
        RowTimes(1),
        RowTimes(0, 5),
        RowTimes(0, column([0, 0])),
        RowTimes(0, column([0, 3])),
        RowTimes(0, column([])),
    ]
    assert [times.has_delays() for times in delayed] == [False, True, False, True, False]


_Times = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30)


@given(rows=_Times, scalar_ttl=st.booleans(), scalar_due=st.booleans())
def test_each_row_keeps_its_times(rows: list[tuple[int, int]], scalar_ttl: bool, scalar_due: bool) -> None:
    ttls, dues = [1 if scalar_ttl else ttl for ttl, _ in rows], [2 if scalar_due else due for _, due in rows]
    times = RowTimes(1 if scalar_ttl else column(ttls), 2 if scalar_due else column(dues))
    found: dict[int, Any] = {}
    for numbers, ttl, of_rows in divided(times, len(rows)):
        assert numbers == sorted(numbers)
        found.update({n: (ttl, due) for n, due in zip(numbers, of_rows or [0] * len(numbers), strict=True)})
    assert found == dict(enumerate(zip(ttls, dues, strict=True)))
    assert times.has_delays() == (scalar_due or any(dues))
    more = times.and_untimed(len(rows), 2)
    assert [ttl for numbers, ttl, _ in divided(more, len(rows) + 2) for _ in numbers].count(0) >= 2
