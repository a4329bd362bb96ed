from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.workers.unfinished import Suspect, Unfinished, suspects_after

OWNER = "pid 7 on host since 2026-11-25T12:00:00+00:00, "

some_ranges = st.lists(st.integers(1, 10**15), min_size=1, max_size=4, unique=True).map(
    lambda ids: [(first, first + 3) for first in sorted(ids)]
)


def none_taken(first: int, last: int) -> list[Range]:
    return [(first, last)]


@given(
    calls=st.lists(some_ranges, max_size=3),
    suspects=st.lists(st.builds(Suspect, some_ranges, st.integers(0, 9)), max_size=3),
    failed=st.dictionaries(st.integers(1, 10**15), st.integers(1, 9), max_size=20),
    most=st.sampled_from([0, 1002]),
)
def test_what_a_note_says_is_read_again(
    calls: list[list[Range]], suspects: list[Suspect], failed: dict[int, int], most: int
) -> None:
    left = Unfinished(most, calls, suspects, failed)
    assert Unfinished.parse(OWNER + left.note()) == left


def test_a_note_is_text_that_users_can_read() -> None:
    left = Unfinished(1002, [[(5, 9), (12, 12)], [(20, 20)]], [Suspect([(7, 7)], 2)])
    assert left.note() == "a worker of up to 1002 events; calls 5-9,12 20; suspects 7x2"


def test_a_worker_that_stopped_says_only_what_has_failed() -> None:
    assert Unfinished(0, [], [], {9: 1, 5: 2, 8: 1}).note() == "a worker that stopped; failed 5x2 8-9x1"


def test_of_very_many_events_that_failed_those_stay_that_failed_most_often() -> None:
    failed = {10**12 + 2 * i: 1 + i % 3 for i in range(1000)}
    note = Unfinished(10**6, [[(i * 10**6, i * 10**6 + 5)] for i in range(1000)], [], failed).note()
    found = Unfinished.parse(OWNER + note)
    assert len(note) < 3100 and found is not None
    assert len(found.failed) > 80 and set(found.failed.values()) == {3}
    assert found.failed.items() <= failed.items()


@pytest.mark.parametrize("note", ["", OWNER, f"{OWNER}load 12", "a worker of up to 5 events", f"{OWNER}a worker of"])
def test_other_owners_leave_nothing(note: str) -> None:
    assert Unfinished.parse(note) is None


def test_what_was_written_in_part_says_that_there_was_a_worker() -> None:
    assert Unfinished.parse(f"{OWNER}a worker of up to 5 events; calls 1-,-") == Unfinished(5, [], [])


def test_a_note_of_very_many_calls_is_short_and_leaves_out_no_event() -> None:
    calls = [[(10**12 + 10 * i, 10**12 + 10 * i + 5)] for i in range(1000)]
    suspects = [Suspect([(i, i)], int(i % 7 == 0)) for i in range(1, 1000, 2)]
    left = Unfinished(10**6, calls, suspects)
    note = left.note()
    found = Unfinished.parse(OWNER + note)
    assert len(note) < 2000 and found is not None and len(found.calls) == 2
    said = RangeSet(r for call in found.calls for r in call)
    assert all(not list(said.gaps(*r)) for call in calls for r in call)
    said = RangeSet(r for suspect in found.suspects for r in suspect.ranges)
    assert all(first in said for suspect in suspects for first, _ in suspect.ranges)
    assert Suspect([(1, 1)], 0) not in found.suspects and Suspect([(7, 7)], 1) in found.suspects


def test_an_event_that_was_alone_under_way_has_an_attempt_more() -> None:
    assert suspects_after(Unfinished(9, [[(5, 5)]], []), none_taken) == [Suspect([(5, 5)], 1)]
    left = Unfinished(9, [[(5, 5)]], [Suspect([(5, 5)], 1), Suspect([(7, 7)], 3)])
    assert suspects_after(left, none_taken) == [Suspect([(5, 5)], 2), Suspect([(7, 7)], 3)]


def test_a_batch_that_was_alone_under_way_comes_in_parts() -> None:
    found = suspects_after(Unfinished(9, [[(1, 100)]], [Suspect([(1, 100)], 0)]), none_taken)
    assert len(found) == 16 and {suspect.attempts for suspect in found} == {0}
    assert [r for suspect in found for r in suspect.ranges][-1][1] == sum(count_of(s.ranges) for s in found) == 100
    assert suspects_after(Unfinished(9, [[(1, 3)]], []), none_taken) == [Suspect([(i, i)], 0) for i in (1, 2, 3)]


def test_of_several_calls_each_is_suspected_and_none_has_an_attempt_more() -> None:
    left = Unfinished(9, [[(1, 4)], [(5, 5)]], [Suspect([(5, 5)], 1)])
    assert suspects_after(left, none_taken) == [Suspect([(1, 4)], 0), Suspect([(5, 5)], 1)]


def test_suspects_that_were_said_less_exactly_stay_but_for_what_was_under_way() -> None:
    left = Unfinished(9, [[(5, 5)]], [Suspect([(5, 9)], 0)])
    assert suspects_after(left, none_taken) == [Suspect([(5, 5)], 1), Suspect([(6, 9)], 0)]


def test_what_was_taken_is_not_suspected() -> None:
    left = Unfinished(9, [[(1, 4)], [(5, 5)]], [Suspect([(2, 3)], 0)])
    assert suspects_after(left, lambda first, last: [(5, 5)] if first == 5 else []) == [Suspect([(5, 5)], 1)]
