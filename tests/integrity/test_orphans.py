"""Transactions without a COMMIT that can be read, which something later proves to have been synced."""

from __future__ import annotations

from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.integrity.orphans import commit_orphans
from spillable_stream.integrity.partial_transactions import PartialTransactions
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState


def pending(*transactions: int, file_id: int = 1) -> ChannelState:
    """Return a state with one put of two events for each transaction, and no COMMIT."""
    state = ChannelState(ChannelOptions(), [encode_schema(EVENT_SCHEMA)])
    for at, tx in enumerate(transactions):
        put = FrameHeader(FrameType.PUT, 100, tx, 2 * at + 1, 2, 0, 0, 0)
        state.apply(file_id, 200 * at, put, None)
    return state


def events_of(state: ChannelState) -> list[tuple[int, int]]:
    return [(block.first_id, block.last_id) for block in state.blocks]


def test_puts_of_a_tier_are_committed_in_order() -> None:
    state = pending(1, 2)
    commit_orphans(state, PartialTransactions(), memory=False)
    assert events_of(state) in ([(1, 2), (3, 4)], [(1, 4)]) and state.pending == {} and state.last_id == 4


def test_those_of_the_other_tier_and_the_one_that_has_its_commit_wait() -> None:
    state = pending(1, 2)
    commit_orphans(state, PartialTransactions(), memory=True)
    assert set(state.pending) == {1, 2}
    commit_orphans(state, PartialTransactions(), memory=False, but=2)
    assert set(state.pending) == {2} and events_of(state) == [(1, 2)]


def test_events_that_are_in_the_state_already_are_not_put_twice() -> None:
    state = pending(1)
    commit_orphans(state, PartialTransactions(), memory=False)
    state.apply(1, 900, FrameHeader(FrameType.PUT, 100, 5, 1, 2, 0, 0, 0), None)
    commit_orphans(state, PartialTransactions(), memory=False)
    assert events_of(state) == [(1, 2)] and state.pending == {} and state.last_id == 2
