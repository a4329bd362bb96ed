"""What a channel holds, on frames that no file ever held."""

from __future__ import annotations

from tests.support.state_log import filled, lost


def test_events_leave_when_the_last_group_has_taken_them() -> None:
    log = filled()
    log.group(2, "a")
    log.group(3, "b")
    log.take(4, "a", (1, 10))
    log.commit(4, "take")
    assert (log.state.floor, log.state.stored()) == (1, 10)
    log.take(5, "b", (1, 7))
    log.commit(5, "take")
    assert (log.state.floor, log.state.stored()) == (8, 3)
    log.take(6, "b", (8, 10))
    log.commit(6, "take")
    assert (log.state.stored(), list(log.state.blocks)) == (0, [])


def test_without_groups_everything_stays() -> None:
    assert filled().state.stored() == 10


def test_a_channel_begins_with_what_was_lost_before_its_first_event() -> None:
    log = filled()
    lost(log, 2, 1, 3)
    assert (log.state.floor, log.state.beginning()) == (4, 1)
    log.group(3, "g", log.state.beginning() - 1)
    group = log.state.groups["g"]
    assert (group.position, list(group.lost), log.state.beginning()) == (3, [(1, 3)], 1)


def test_a_channel_begins_later_when_every_group_took_what_comes_after_a_loss() -> None:
    log = filled()
    log.group(2, "g")
    log.take(3, "g", (1, 5))
    log.commit(3, "take")
    lost(log, 4, 6, 8)
    assert (log.state.floor, log.state.beginning()) == (9, 6)
    log.take(5, "g", (9, 9))
    log.commit(5, "take")
    assert (log.state.floor, log.state.beginning()) == (10, 10)
    log.group(6, "new", 0)
    assert (log.state.groups["new"].position, list(log.state.groups["new"].lost)) == (9, [])
