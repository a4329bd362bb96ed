"""A group's position."""

from __future__ import annotations

from spillable_stream.state.group import GroupState


def test_what_is_taken_in_order_moves_the_position() -> None:
    group = GroupState(0)
    group.take(1, 5)
    group.take(6, 6)
    assert (group.position, list(group.ahead)) == (6, [])


def test_what_is_taken_ahead_is_kept_until_the_gap_is_taken() -> None:
    group = GroupState(0)
    group.take(4, 5)
    assert (group.position, list(group.ahead), group.taken_count()) == (0, [(4, 5)], 2)
    group.take(1, 3)
    assert (group.position, list(group.ahead), group.taken_count()) == (5, [], 5)


def test_events_taken_again_change_nothing() -> None:
    group = GroupState(0)
    group.take(1, 5)
    group.take(2, 4)
    assert group.taken() == (5, [])


def test_only_what_was_not_taken_can_be_lost() -> None:
    group = GroupState(0)
    group.take(1, 3)
    group.take(6, 6)
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
        group.take(first, last)
    assert (group.position, list(group.ahead)) == (3, [(5, 6)])
    group.take(4, 4)
    assert (group.position, list(group.ahead)) == (6, [])
    group.take(1, 6)
    assert (group.position, list(group.ahead)) == (6, [])
