"""What the records of control transactions change, on frames that no file ever held."""

from __future__ import annotations

from spillable_stream.format.frame import FrameType
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.spill_rules import MemoryTierInfo
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


def test_a_group_made_after_a_loss_learns_of_what_was_lost_after_its_start() -> None:
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


def test_a_group_passes_over_what_had_left_when_it_was_made_or_moved() -> None:
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
