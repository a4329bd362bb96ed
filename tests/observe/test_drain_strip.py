"""The drain order as a strip."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.observe.drain_strip import strip_cells


def shown(drain_order: list[int], cells: int) -> str:
    return "".join("m" if is_memory else "d" for is_memory in strip_cells(drain_order, cells))


def test_cells_are_in_proportion_in_the_order_of_takes() -> None:
    assert shown([10, -30], 8) == "mmdddddd"
    assert shown([-1, 1, -2], 4) == "dmdd"
    assert shown([3], 5) == "mmmmm"
    assert shown([], 5) == ""


def test_of_more_runs_than_cells_each_cell_is_of_the_tier_with_most_of_its_share() -> None:
    assert shown([3, -1] * 500, 70) == "m" * 70
    assert shown([*[1, -3] * 250, *[3, -1] * 250], 10) == "dddddmmmmm"


@given(st.lists(st.integers(-50, 50).filter(bool), min_size=1, max_size=40), st.integers(1, 60))
def test_each_cell_agrees_with_a_count_of_single_events(runs: list[int], cells: int) -> None:
    events = [run > 0 for run in runs for _ in range(abs(run) * cells)]  # so that a cell has whole ones
    share = len(events) // cells
    expected = [2 * sum(events[i * share : (i + 1) * share]) >= share for i in range(cells)]
    found = list(strip_cells(runs, cells))
    near = [2 * sum(events[i * share : (i + 1) * share]) == share for i in range(cells)]
    assert [f for f, n in zip(found, near, strict=True) if not n] == [
        e for e, n in zip(expected, near, strict=True) if not n
    ]
