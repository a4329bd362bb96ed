"""A group's position."""

from __future__ import annotations

import pytest

from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import RangeSet


def test_what_is_taken_in_order_moves_the_position() -> None:
    group = GroupState(0)
    group.count_as_taken(1, 5)
    group.count_as_taken(6, 6)
    assert (group.position, list(group.ahead)) == (6, [])


def test_what_is_taken_ahead_is_kept_until_the_gap_is_taken() -> None:
    group = GroupState(0)
    group.count_as_taken(4, 5)
    assert (group.position, list(group.ahead), group.taken_count()) == (0, [(4, 5)], 2)
    group.count_as_taken(1, 3)
    assert (group.position, list(group.ahead), group.taken_count()) == (5, [], 5)


def test_what_is_untaken_is_after_the_position_and_was_not_taken_ahead() -> None:
    group = GroupState(2)
    group.count_as_taken(5, 6)
    assert list(group.untaken(1, 8)) == [(3, 4), (7, 8)]
    assert list(group.untaken(1, 2)) == list(group.untaken(5, 6)) == []


def test_events_taken_again_change_nothing() -> None:
    group = GroupState(0)
    group.count_as_taken(1, 5)
    group.count_as_taken(2, 4)
    assert group.taken() == (5, [])


def test_only_what_was_not_taken_can_be_lost() -> None:
    group = GroupState(0)
    group.count_as_taken(1, 3)
    group.count_as_taken(6, 6)
    group.lose(2, 8)
    assert (group.position, list(group.lost)) == (8, [(4, 5), (7, 8)])


def test_what_another_source_knows_is_merged() -> None:
    group = GroupState(2)
    group.merge(4, [(7, 8)])
    assert group.image() == (4, [(7, 8)])
    group.merge(3, [(5, 6)])
    assert group.image() == (8, [])


def test_a_group_position_skips_what_was_taken_ahead() -> None:
    group = GroupState(0)
    for first, last in [(5, 6), (3, 3), (1, 1), (2, 2)]:
        group.count_as_taken(first, last)
    assert (group.position, list(group.ahead)) == (3, [(5, 6)])
    group.count_as_taken(4, 4)
    assert (group.position, list(group.ahead)) == (6, [])
    group.count_as_taken(1, 6)
    assert (group.position, list(group.ahead)) == (6, [])


def test_what_was_removed_is_told_until_a_later_event_is_taken() -> None:
    group = GroupState(2)
    group.count_as_taken(5, 6)
    group.remove(1, 8)
    assert (group.position, list(group.removed), list(group.lost)) == (8, [(3, 4), (7, 8)], [])
    group.took(9, 9)
    assert list(group.removed) == []


def test_an_event_that_expires_while_it_is_taken_was_taken() -> None:
    group = GroupState(0)
    group.remove(1, 8)
    group.took(1, 5)
    assert list(group.removed) == [(6, 8)]


def test_events_that_are_given_back_are_taken_again_and_no_others() -> None:
    group = GroupState(4, RangeSet([(7, 9)]))
    for first, last, left in ((8, 8, (4, [(7, 7), (9, 9)])), (3, 3, (2, [(4, 4), (7, 7), (9, 9)])), (5, 6, None)):
        before = group.taken()
        group.give_back(first, last)
        assert group.taken() == (left or before)
    group.give_back(1, 9)
    assert group.taken() == (0, [])


def test_a_seek_forgets_what_was_taken_and_what_was_missed() -> None:
    group = GroupState(0)
    group.count_as_taken(5, 6)
    group.lose(1, 2)
    group.remove(1, 3)
    group.seek(1, "name", "first")
    assert (group.taken(), list(group.lost), list(group.removed)) == ((1, []), [], [])
    assert (group.is_sought, group.reset) == (True, "name")
    group.took(2, 2)
    assert (group.is_sought, group.reset) == (False, "name")
    group.seek(0, "", "second")
    assert (group.is_sought, group.reset, group.token) == (True, "name", "second")


@pytest.mark.parametrize(
    "group",
    [
        GroupState(4),
        GroupState(4, RangeSet([(6, 8)])),
        GroupState(4, RangeSet([(6, 8)]), RangeSet([(7, 7)])),
        GroupState(4, removed=RangeSet([(2, 3)])),
        GroupState(4, is_automatic=True, has_planned=True, idle_ms=5),
        GroupState(4, is_sought=True, reset="name", token="first"),
    ],
)
def test_a_group_is_known_by_its_image(group: GroupState) -> None:
    assert GroupState.of(group.image()) == group
    assert len(group.image()) == (4 if group.image()[3:] else 3 if group.lost else 2)


def test_what_only_another_source_knows_of_a_group_counts_as_its_own_takes() -> None:
    group = GroupState(4, is_automatic=True, is_sought=True, idle_ms=7)
    group.merge(4, [])
    assert (group.is_sought, group.has_planned, group.idle_ms) == (True, False, 7)
    group.merge(5, [])
    assert (group.is_sought, group.has_planned, group.idle_ms) == (False, True, 0)
