"""What the records of control transactions change, on frames that no file ever held."""

from __future__ import annotations

import pytest

from spillable_stream.format.file_names import memory_file_id
from spillable_stream.format.frame import FrameType
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.spill_rules import MemoryTierInfo
from spillable_stream.state.wall_clock import ClockReading, Jump
from tests.support.state_log import Log, filled, lost


def test_dropping_the_slowest_group_frees_its_events() -> None:
    log = filled()
    log.group(2, "slow")
    log.group(3, "fast")
    log.take(4, "fast", (1, 10))
    log.commit(4, "take")
    log.control(5, FrameType.GROUP, {"group": "slow", "drop": True})
    assert (list(log.state.groups), log.state.stored()) == (["fast"], 0)


def test_a_take_of_a_dropped_group_changes_nothing() -> None:
    log = filled()
    log.group(2, "g")
    log.take(3, "g", (1, 10))
    log.control(4, FrameType.GROUP, {"group": "g", "drop": True})
    log.commit(3, "take")
    assert (log.state.groups, log.state.stored()) == ({}, 10)


def test_options_and_schemas_change_by_commit() -> None:
    log = Log()
    log.control(1, FrameType.OPTIONS, {"overflow_capacity": 7})
    log.control(2, FrameType.SCHEMA, {"id": 1, "schema": b"second"})
    log.control(3, FrameType.SCHEMA, {"id": 1, "schema": b"of a loser"})
    assert log.state.options == ChannelOptions(overflow_capacity=7)
    assert log.state.schemas == [b"schema", b"second"]


def test_creating_a_group_that_exists_leaves_its_position() -> None:
    log = filled()
    log.group(2, "g", 4)
    log.group(3, "g", 0)
    assert log.state.groups["g"].position == 4


def test_a_group_that_is_created_after_a_loss_learns_of_what_was_lost_after_its_start() -> None:
    log = filled()
    lost(log, 2, 4, 6)
    for name, position in [("all", 0), ("since", 4), ("after", 6), ("latest", 10)]:
        log.group(3, name, position)
    groups = log.state.groups
    assert {name: list(g.lost) for name, g in groups.items()} == {
        "all": [(4, 6)],
        "since": [(5, 6)],
        "after": [],
        "latest": [],
    }
    assert [(g.position, list(g.ahead)) for g in groups.values()] == [(0, [(4, 6)]), (6, []), (6, []), (10, [])]


def test_a_group_passes_over_what_had_left_when_it_was_created_or_moved() -> None:
    log = filled()
    log.control(2, FrameType.GROUP, {"group": "made", "position": 1, "left": [(4, 6)]})
    log.group(3, "moved", 10)
    log.control(4, FrameType.GROUP, {"group": "moved", "seek": 2, "left": [(3, 6), (9, 9)]})
    groups = log.state.groups
    assert [(g.position, list(g.ahead)) for g in groups.values()] == [(1, [(4, 6)]), (6, [(9, 9)])]
    assert groups["moved"].is_sought


def test_what_no_file_holds_and_was_not_lost_has_left() -> None:
    log = filled()
    assert log.state.left_after(0) == []
    log.state.memory = MemoryTierInfo(1, 1000, True, 100, "token")
    log.state.blocks.drop_through(10)
    assert log.state.left_after(3) == [(4, 10)]
    lost(log, 2, 5, 6)
    assert log.state.left_after(3) == [(4, 4), (7, 10)]


def test_what_leaves_is_removed_for_a_group_that_has_not_taken_it() -> None:
    log = filled()
    log.group(2, "slow", 0)
    log.group(3, "fast", 8)
    log.control(4, FrameType.RETENTION, {"through": 6})
    state = log.state
    assert (state.first_kept, state.floor, state.beginning()) == (7, 7, 7)
    assert [(g.position, list(g.removed)) for g in state.groups.values()] == [(6, [(1, 6)]), (8, [])]
    assert (state.missing(), state.stored()) == ([], 4)


@pytest.mark.parametrize(("through", "first_kept"), [(0, 1), (10, 11), (99, 11)])
def test_no_more_leaves_than_there_is(through: int, first_kept: int) -> None:
    log = filled()
    log.control(2, FrameType.RETENTION, {"through": through})
    log.control(3, FrameType.RETENTION, {"through": 0})
    assert (log.state.first_kept, log.state.next_id) == (first_kept, 11)


def test_a_clock_and_its_jump_are_noted() -> None:
    log = filled()
    log.control(2, FrameType.RETENTION, {"clock": ["0a", 1, 2, 3]})
    log.control(3, FrameType.RETENTION, {"clock": ["0a", 4, 5, 6], "jump": [7, -8, 9]})
    assert log.state.clock.reading == ClockReading("0a", 4, 5, 6)
    assert log.state.clock.jumps == [Jump(7, -8, 9)]
    assert log.state.first_kept == 1


@pytest.mark.parametrize(("to", "position"), [(-5, 3), (0, 3), (3, 3), (7, 7), (10, 10), (99, 10)])
def test_a_group_goes_no_further_back_than_what_is_there_and_no_further_than_the_end(to: int, position: int) -> None:
    log = filled()
    log.control(1, FrameType.OPTIONS, {"retention_ms": 1000})
    log.group(2, "g", 8)
    log.control(3, FrameType.RETENTION, {"through": 3})
    log.control(4, FrameType.GROUP, {"group": "g", "seek": to})
    assert (log.state.groups["g"].position, log.state.missing()) == (position, [])


def test_a_group_that_goes_back_over_a_loss_is_told_about_it() -> None:
    log = filled()
    log.control(1, FrameType.OPTIONS, {"retention_ms": 1000})
    log.group(2, "g", 10)
    lost(log, 3, 4, 6)
    group = log.state.groups["g"]
    assert list(group.lost) == []
    log.control(5, FrameType.GROUP, {"group": "g", "seek": 1})
    assert (group.position, list(group.ahead), list(group.lost)) == (1, [(4, 6)], [(4, 6)])


def test_a_seek_of_a_group_that_was_dropped_changes_nothing() -> None:
    log = filled()
    log.control(2, FrameType.GROUP, {"group": "nobody", "seek": 1})
    log.control(3, FrameType.GROUP, {"group": "nobody", "idle": 1})
    assert log.state.groups == {}


def test_a_stream_that_lost_its_group_is_told_what_it_had_not_read() -> None:
    log = filled()
    log.control(2, FrameType.GROUP, {"group": "auto", "position": 6, "auto": True, "since": 4})
    group = log.state.groups["auto"]
    assert (group.is_automatic, group.has_planned, list(group.removed)) == (True, True, [(5, 6)])


def test_a_plan_without_events_is_remembered() -> None:
    log = filled()
    log.control(2, FrameType.GROUP, {"group": "auto", "position": 0, "auto": True})
    log.control(3, FrameType.GROUP, {"group": "auto", "idle": 0, "planned": True})
    log.control(4, FrameType.GROUP, {"group": "auto", "idle": 500})
    group = log.state.groups["auto"]
    assert (group.idle_ms, group.has_planned) == (500, True)


def test_time_without_an_owner_counts_until_a_take() -> None:
    log = filled()
    log.control(2, FrameType.GROUP, {"group": "auto", "position": 0, "auto": True})
    log.control(3, FrameType.GROUP, {"group": "auto", "idle": 500})
    group = log.state.groups["auto"]
    assert (group.idle_ms, group.has_planned) == (500, False)
    log.take(4, "auto", (1, 1))
    assert (group.idle_ms, group.has_planned) == (0, True)


def test_what_left_memory_ahead_of_others_stays_away_when_the_last_group_goes() -> None:
    """The events before it are still there; without this the channel would be refused for missing events."""
    log = Log()
    tier = {"generation": 1, "bytes": 1 << 20, "open": True, "through": 100, "token": "t"}
    log.control(1, FrameType.RESERVE, tier)
    log.group(2, "g")
    for tx, first in (3, 1), (4, 6):
        log.put(tx, first, 5, file=memory_file_id(1, tx))
        log.commit(tx, "put", first, 5, file=memory_file_id(1, tx))
    log.take(5, "g", (6, 10))
    log.commit(5, "take")
    assert [b.first_id for b in log.state.blocks] == [1]
    log.control(6, FrameType.GROUP, {"group": "g", "drop": True})
    assert (log.state.missing(), list(log.state.lost), log.state.stored()) == ([], [(6, 10)], 5)


def test_an_automatic_group_may_have_planned_a_batch_in_a_memory_that_is_gone() -> None:
    """One that never did is dropped as soon as nobody owns it; this one is in a checkpoint, perhaps."""
    log = filled()
    log.control(2, FrameType.GROUP, {"group": "auto", "position": 0, "auto": True})
    log.control(3, FrameType.GROUP, {"group": "named", "position": 0})
    log.control(4, FrameType.LOST, {"lost": [], "doubtful": [], "next": 11, "groups": {}})
    assert {name: g.has_planned for name, g in log.state.groups.items()} == {"auto": True, "named": False}
