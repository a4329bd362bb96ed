"""What a channel holds, on frames that no file ever held."""

from __future__ import annotations

from spillable_stream.format.frame import FrameType
from spillable_stream.state.contents import Recovery, Restore
from tests.support.state_log import Log, filled, lost


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


def keeping(count: int = 10) -> Log:
    """Return a channel that keeps taken events, in which a group has taken all."""
    log = filled(count)
    log.control(20, FrameType.OPTIONS, {"retention_ms": 1000})
    log.group(21, "g")
    log.take(22, "g", (1, count))
    log.commit(22, "take")
    return log


def test_events_that_are_kept_count_as_such_and_not_as_stored() -> None:
    state = keeping().state
    assert (state.floor, state.first_kept, state.stored(), state.kept().events) == (11, 1, 0, 10)
    assert (state.use(in_memory=False).events, state.drain_order(), state.beginning()) == (0, [], 1)


def test_a_group_that_went_back_needs_its_events_and_raises_no_count() -> None:
    log = keeping()
    log.control(23, FrameType.GROUP, {"group": "g", "seek": 4})
    state = log.state
    assert (state.floor, state.needed_from(), state.lag("g")) == (11, 5, 6)
    assert (state.stored(), state.kept().events) == (0, 10)


def test_without_the_options_events_leave_behind_the_last_group_that_went_back() -> None:
    log = keeping()
    log.group(23, "other", 10)
    log.control(24, FrameType.GROUP, {"group": "g", "seek": 4})
    log.control(25, FrameType.OPTIONS, {"retention_ms": 0})
    assert (log.state.first_kept, log.state.floor) == (5, 11)
    log.take(26, "g", (5, 7))
    log.commit(26, "take")
    assert (log.state.first_kept, log.state.floor) == (8, 11)
    log.control(27, FrameType.GROUP, {"group": "g", "drop": True})
    assert (log.state.first_kept, list(log.state.blocks)) == (11, [])


def test_an_event_is_of_the_last_restore_before_it() -> None:
    state = filled().state
    state.restores = [Restore(0, "of an empty backup"), Restore(4, "first"), Restore(7, "second"), Restore(7, "third")]
    found = [state.restore_before(event_id) for event_id in (0, 1, 4, 5, 7, 8, 100)]
    assert found == ["", *["of an empty backup"] * 2, *["first"] * 2, *["third"] * 2]


def test_an_event_is_of_the_last_recovery_before_it_that_something_was_appended_after() -> None:
    state = filled().state
    last = state.last_id
    for token in ("a", "b"):
        state.begin_recovery(token)
    state.next_id += 2
    state.begin_recovery("c")
    found = [state.recovery_before(event_id) for event_id in (1, last, last + 1, last + 2, last + 3, 1000)]
    assert found == ["", "", "b", "b", "c", "c"]


def test_a_state_knows_so_many_recoveries_and_no_more() -> None:
    state = filled().state
    for number in range(100):
        state.begin_recovery(str(number))
        state.next_id += 1
    assert len(state.recoveries) == 32 and state.recoveries[-1].token == "99"
    assert state.recovery_before(state.recoveries[0].last_id) == ""


def test_an_event_of_another_restore_or_recovery_is_another_one() -> None:
    state = filled().state
    state.restores, state.recoveries = [Restore(4, "r")], [Recovery(2, "a"), Recovery(6, "b")]
    assert state.may_have(2, "", "") and state.may_have(2, "", "of long ago")
    assert state.may_have(3, "", "a") and not state.may_have(3, "", "b")
    assert state.may_have(7, "r", "b") and state.may_have(7, "r", "")
    assert not state.may_have(7, "r", "a") and not state.may_have(7, "", "b") and not state.may_have(7, "", "")
