from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.state.ranges import RangeSet, among_events, events_in, listed

RANGE = st.tuples(st.integers(0, 40), st.integers(-2, 8)).map(lambda r: (r[0], r[0] + r[1]))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), RANGE), max_size=30)


def members(first: int, last: int) -> set[int]:
    return set(range(first, last + 1))


@given(STEPS, RANGE)
def test_it_behaves_as_a_set_of_integers(steps: list[tuple[str, tuple[int, int]]], probe: tuple[int, int]) -> None:
    ranges, model = RangeSet(), set[int]()
    for step, (first, last) in steps:
        if step == "add":
            ranges.add(first, last)
            model |= members(first, last)
        else:
            ranges.remove(first, last)
            model -= members(first, last)

    runs = list(ranges)
    assert [i for a, b in runs for i in range(a, b + 1)] == sorted(model)
    assert all(b + 1 < c for (_, b), (c, _) in pairwise(runs)), "runs that touch are one"
    assert len(ranges) == len(runs)
    assert ranges.size() == len(model)
    assert all((i in ranges) == (i in model) for i in range(-3, 60))
    gaps = list(ranges.gaps(*probe))
    assert [i for a, b in gaps for i in range(a, b + 1)] == sorted(members(*probe) - model)
    assert all(a <= b for a, b in gaps)


@given(st.lists(RANGE), st.lists(RANGE))
def test_a_union_has_the_members_of_both(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = RangeSet(a), RangeSet(b)
    before = list(left), list(right)
    assert left.union(right) == RangeSet([*a, *b])
    assert (list(left), list(right)) == before


def test_many_ranges_are_told_in_few_words() -> None:
    assert listed([(1, 2), (4, 4)]) == "1 to 2, 4"
    assert listed([(i, i) for i in range(1, 24, 2)]).endswith("17, 19, and 2 more ranges")


def test_one_event_is_said_as_one_and_several_as_several() -> None:
    assert [events_in([(13, 13)]), events_in([(13, 13)], "are")] == ["the event 13", "the event 13 is"]
    assert [events_in([(1, 2)]), events_in([(1, 1), (4, 5)], "have")] == [
        "the events 1 to 2",
        "the events 1, 4 to 5 have",
    ]
    assert [among_events(13, 13), among_events(1, 2)] == ["in the event 13", "among the events 1 to 2"]
