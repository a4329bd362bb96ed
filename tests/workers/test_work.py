from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.state.ranges import Range
from spillable_stream.workers.work import Work, WorkQueue, backoff_seconds, halves


def ids(ranges: list[Range]) -> list[int]:
    return [i for a, b in ranges for i in range(a, b + 1)]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6).filter(lambda x: sum(x) > 1))
def test_halves_hold_every_event_once_in_order_and_neither_is_empty(lengths: list[int]) -> None:
    ranges, first = [], 1
    for length in lengths:
        ranges.append((first, first + length - 1))
        first += length + 2
    a, b = halves(ranges)
    assert ids(a) + ids(b) == ids(ranges)
    assert len(ids(a)) == len(ids(ranges)) // 2 and b


def test_the_backoff_doubles_up_to_five_minutes_less_up_to_a_half_by_chance() -> None:
    assert [backoff_seconds(1.0, n, 0.0) for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert backoff_seconds(1.0, 1, 1.0) == 0.5
    assert backoff_seconds(1.0, 10_000, 0.0) == 300
    assert backoff_seconds(600.0, 3, 0.0) == 600
    assert backoff_seconds(0.0, 3, 0.0) == 0


def test_work_waits_until_it_is_due_and_comes_in_order() -> None:
    queue = WorkQueue()
    late, early, now = Work([(1, 1)]), Work([(5, 6)]), Work([(9, 9)])
    queue.put(late, 3.0)
    queue.put(early, 2.0)
    queue.put(now)
    assert queue.events == 4 and len(queue) == 3
    assert queue.pop_due(1.0) is now and queue.next_due() == 2.0
    assert queue.pop_due(1.9) is None
    assert queue.pop_due(3.0) is early and queue.pop_due(3.0) is late
    assert queue.pop_due(9.0) is None and queue.events == 0 and queue.next_due() is None
