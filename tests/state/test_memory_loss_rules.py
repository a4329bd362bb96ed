"""What went with a memory tier."""

from __future__ import annotations

from spillable_stream.format.file_names import memory_file_id
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.format.head_page import NO_TIER, CommitPoint, TierEnd
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.memory_loss_rules import (
    appends_may_be_missing,
    lose_memory,
    lose_newest_appends,
    may_have_been_used,
    token_of,
)
from spillable_stream.state.spill_rules import MemoryTierInfo

BOOT = b"b" * 16


def state(last_id: int = 10, reserved_id: int = 100) -> ChannelState:
    """Return a state with a memory tier, which holds the events from 5 on."""
    found = ChannelState(ChannelOptions(), [])
    found.next_id = last_id + 1
    found.memory = MemoryTierInfo(1, 1 << 20, True, reserved_id, "token")
    found.groups = {"fast": GroupState(4), "slow": GroupState(0)}
    header = FrameHeader(FrameType.PUT, 10, 1, 1, 4, 0, 1, 0)
    found.blocks.add(Block(1, header.count, 1, 64, 10, 1))
    return found


def test_what_a_group_had_taken_by_its_file_is_not_lost() -> None:
    loss = lose_memory(state(), {"fast": (10, []), "slow": (4, [(6, 7)])}, 10, unused=False)
    assert loss.lost == [(5, 5), (8, 10)]
    assert loss.groups == {"fast": (10, []), "slow": (4, [(6, 7)])}


def test_ids_that_were_reserved_and_not_published_are_doubtful() -> None:
    nothing = {"fast": (0, []), "slow": (0, [])}
    loss = lose_memory(state(), nothing, 20, unused=False)
    assert (loss.lost, loss.doubtful, loss.last_id) == ([(5, 20)], [(21, 100)], 100)
    assert loss.record() == {"lost": [(5, 20)], "doubtful": [(21, 100)], "groups": loss.groups, "next": 101}


def test_a_tier_that_never_held_anything_leaves_no_doubt() -> None:
    nothing = {"fast": (0, []), "slow": (0, [])}
    loss = lose_memory(state(last_id=4), nothing, 4, unused=True)
    assert (loss.lost, loss.doubtful, loss.last_id) == ([], [], 4)


def test_a_tier_may_have_been_used_unless_the_head_names_no_file_of_it() -> None:
    disk = TierEnd(1, 64)
    assert not may_have_been_used(state(), CommitPoint(disk, NO_TIER, 4))
    assert not may_have_been_used(state(), CommitPoint(disk, TierEnd(memory_file_id(7, 1), 64), 4)), "an earlier tier"
    assert may_have_been_used(state(), CommitPoint(disk, TierEnd(memory_file_id(1, 1), 64), 4))
    assert may_have_been_used(state(), None), "nobody knows"


def test_appends_to_a_tier_without_a_medium_are_there_until_the_reboot() -> None:
    assert not appends_may_be_missing({"boot": BOOT}, BOOT, in_memory=True)
    assert appends_may_be_missing({"boot": BOOT}, BOOT, in_memory=False)
    assert appends_may_be_missing({"boot": BOOT}, b"another", in_memory=True)
    assert appends_may_be_missing(None, BOOT, in_memory=True)


def test_newest_appends_had_ids_among_the_reserved() -> None:
    assert lose_newest_appends(state(last_id=100)) is None
    loss = lose_newest_appends(state())
    assert loss is not None
    assert loss.record() == {"lost": [], "doubtful": [(11, 100)], "groups": {}, "kept": True, "next": 101}


def test_an_image_says_which_tier_it_is_of() -> None:
    assert token_of(state().small()) == "token"
