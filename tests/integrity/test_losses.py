"""Which events are gone that no finding explains."""

from __future__ import annotations

from pathlib import Path

from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.losses import kept_and_gone, unexplained
from spillable_stream.state.block import Block
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState
from tests.support.object_logs import new_state


def state_of(*blocks: tuple[int, int]) -> ChannelState:
    """Return a state of ten events, of which these ranges are in slots."""
    state = new_state()
    state.next_id = 11
    state.blocks = Blocks(Block(first, last - first + 1, 1, 0, 0, 0) for first, last in blocks)
    return state


def test_events_that_no_block_has_are_gone_unless_they_are_lost_already() -> None:
    state = state_of((1, 2), (6, 10))
    assert kept_and_gone(state, [], Findings()) == [(3, 5)]
    assert kept_and_gone(state, [(3, 3)], Findings()) == [(4, 5)]
    state.lost.add(4, 5)
    assert kept_and_gone(state, [(3, 3)], Findings()) == []


def test_only_damage_makes_gaps_suspect_in_a_channel_that_ever_had_a_memory_tier() -> None:
    state, findings = state_of((1, 2)), Findings()
    state.memory.generation = 1
    assert kept_and_gone(state, [], findings) == []
    findings.damage(Path("log/1"), "it is damaged")
    assert kept_and_gone(state, [], findings) == [(3, 10)]


def test_what_a_finding_names_is_explained() -> None:
    findings = Findings()
    findings.damage(Path("log/1"), "it is damaged", events=[(2, 4)])
    assert unexplained([(1, 5), (8, 9)], findings) == [(1, 1), (5, 5), (8, 9)]
