"""Takes that are committed, moved and rolled back in one append."""

from __future__ import annotations

import pytest

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.requests import Request
from spillable_stream.engine.take_requests import Prepare, PrepareOnDisk, Rollback, Take, Takes, TakesAndPrepare
from spillable_stream.errors import GroupOwnedError
from spillable_stream.format.frame import MAX_COUNT, FrameType, encode_with
from spillable_stream.format.take_record import TakeRecord
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Pending


def test_takes_that_move_to_disk_are_written_however_many_events_they_are_of() -> None:
    many = 5 << 30
    plan = AppendPlan(ChannelState(ChannelOptions(overflow_capacity=1), [b"schema"]))
    PrepareOnDisk({7: [TakeRecord("g", [(1, many)])]}).plan(plan)
    plan.commit("move", many, 8)
    assert [header.count for header, _, _ in plan.entries] == [MAX_COUNT] * 2
    for header, payload, _ in plan.entries:
        encode_with(header, payload, 0)


def test_takes_that_are_refused_for_one_of_them_leave_the_others_open_for_the_requests_behind_them() -> None:
    state = ChannelState(ChannelOptions(), [b"schema"])
    state.pending[5] = Pending(takes=(TakeRecord("g", [(1, 1)]),))
    plan = AppendPlan(state)

    def refuse() -> None:
        raise GroupOwnedError("another owns it")

    with pytest.raises(GroupOwnedError):
        plan.attempt(Takes([Take("g", [(1, 1)], 5), Take("g", [(2, 2)], 0, require_owner=refuse)]).plan)
    plan.attempt(Rollback([5]).plan)
    assert [(header.type, header.transaction_id) for header, _, _ in plan.entries] == [(FrameType.ROLLBACK, 5)]


@pytest.mark.parametrize("ended", [Rollback([5]), Takes([Take("g", [(1, 1)], 5)])])
def test_a_take_that_the_same_append_ends_is_not_the_one_that_it_prepares(ended: Request) -> None:
    state = ChannelState(ChannelOptions(), [b"schema"])
    state.pending[5], state.next_transaction = Pending(takes=(TakeRecord("g", [(1, 1)]),)), 6
    prepare = Prepare("g", [(1, 1)])
    assert AppendPlan(state).attempt(prepare.plan).transaction_id == 5, "it is prepared already"
    plan = AppendPlan(state)
    if isinstance(ended, Takes):
        found = plan.attempt(TakesAndPrepare(ended, prepare).plan)
    else:
        plan.attempt(ended.plan)
        found = plan.attempt(prepare.plan)
    header, _, _ = plan.entries[-1]
    assert (header.type, header.transaction_id, found.transaction_id) == (FrameType.TAKE, 6, 6)
