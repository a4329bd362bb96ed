"""What requests of owners write, and what they write nothing for: planned on a state, and on one that has them."""

from __future__ import annotations

import pytest

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.requests import Request
from spillable_stream.engine.store.owner_requests import Claim, GiveUp, Own
from spillable_stream.format.file_names import Tier
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import OwnerRecord
from tests.support.object_logs import new_state


@pytest.fixture
def state() -> ChannelState:
    return new_state()


def write(request: Request, state: ChannelState, number: int = 1) -> int:
    """Plan a request, and apply what it writes as slot ``number``; return how many records that is."""
    plan = AppendPlan(state, Tier.DISK, start=0)
    request.plan(plan)
    for header, payload, _ in plan.entries:
        state.apply(number, 0, header, bytes(payload))
    return len(plan.entries)


def owned(state: ChannelState, note: str) -> OwnerRecord:
    request = Own("g", note, state.owners.get("g"))
    assert write(request, state) == 2, "the record and its COMMIT"
    assert request.epoch == state.owners["g"].epoch > 0
    return state.owners["g"]


def test_nobodys_group_is_owned_with_an_epoch_that_no_other_ownership_has(state: ChannelState) -> None:
    first = owned(state, "one")
    assert write(GiveUp("g", first.epoch), state) == 2
    assert "g" not in state.owners
    assert owned(state, "two").epoch > first.epoch


def test_whoever_saw_another_owner_writes_nothing(state: ChannelState) -> None:
    one = owned(state, "one")
    for late in (Own("g", "two", None), Claim("g", one._replace(epoch=one.epoch + 1), "two")):
        assert write(late, state) == 0
    assert state.owners["g"] == one


def test_an_answer_to_a_claim_keeps_the_epoch(state: ChannelState) -> None:
    one = owned(state, "one")
    assert write(Claim("g", one, "two"), state) == 2
    claimed = state.owners["g"]
    assert claimed.claim == "two"
    answer = Own("g", "one", claimed, is_answer=True)
    assert write(answer, state) == 2
    assert state.owners["g"] == one and answer.epoch == one.epoch


def test_what_a_former_owner_gives_up_is_not_the_new_ones(state: ChannelState) -> None:
    one = owned(state, "one")
    two = owned(state, "two")
    assert write(GiveUp("g", one.epoch), state) == 0
    assert state.owners["g"] == two


def test_what_is_there_already_is_found_and_not_written_again(state: ChannelState) -> None:
    """A pause hid whether it is: a request says that it may be planned again, and finds itself."""
    own = Own("g", "one", None)
    assert write(own, state) == 2
    epoch = own.epoch
    assert own.may_repeat()
    assert (write(own, state), own.epoch) == (0, epoch)
    claim = Claim("g", state.owners["g"], "two")
    assert write(claim, state) == 2
    assert claim.may_repeat() and write(claim, state) == 0
    give_up = GiveUp("g", epoch)
    assert write(give_up, state) == 2
    assert give_up.may_repeat() and write(give_up, state) == 0
