"""Control records and moves: what they add to an append."""

from __future__ import annotations

import pytest

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.requests import Control, Move, Request
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState, MemoryTierInfo
from tests.support.state_log import filled


def planned(request: Request, state: ChannelState) -> AppendPlan:
    plan = AppendPlan(state)
    request.plan(plan)
    return plan


def test_a_group_that_is_created_passes_over_what_has_left_since_its_position_was_chosen() -> None:
    state = filled().state
    state.memory = MemoryTierInfo(1, 1000, True, 100, "token")
    state.blocks.drop_through(10)
    chosen: GroupRecord = {"group": "g", "position": 3}
    (_, _, record), _ = planned(Control(FrameType.GROUP, chosen), state).entries
    assert record == {"group": "g", "position": 3, "left": [[4, 10]]}
    assert chosen == {"group": "g", "position": 3}


def test_a_group_record_without_a_position_is_stored_as_it_is() -> None:
    dropped: GroupRecord = {"group": "g", "drop": True}
    (control, _, record), (commit, _, _) = planned(Control(FrameType.GROUP, dropped), filled().state).entries
    assert record == dropped
    assert control.transaction_id == commit.transaction_id


def test_a_move_counts_its_segments_and_no_put() -> None:
    plan = planned(Move([], [SegmentRef("segment", 100, 7, 60, 1, 1, 1)]), ChannelState(ChannelOptions(), [b"schema"]))
    assert [(header.type, header.count) for header, _, _ in plan.entries] == [(FrameType.COMMIT, 7)]
    assert plan.put_events == 0


def test_a_request_says_its_size_and_plan_itself() -> None:
    with pytest.raises(TypeError, match="Request has no size"):
        Request().size_bytes()
    with pytest.raises(TypeError, match="Request can't be planned"):
        planned(Request(), filled().state)
