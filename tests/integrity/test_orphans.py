"""Transactions without a COMMIT that can be read, which something later proves to have been synced."""

from __future__ import annotations

from pathlib import Path

from spillable_stream import Channel
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.integrity.orphans import commit_orphans
from spillable_stream.integrity.partial_transactions import PartialTransactions
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from tests.support.channels import repaired
from tests.support.damage import flip, frames, log_file
from tests.support.events import numbered, peek, put


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


def test_a_put_whose_commit_is_damaged_is_kept_before_a_move_of_earlier_events(path: Path) -> None:
    """It was committed behind the move, so that its events were looked for behind the moved ones."""
    options = {"memory_capacity": 5, "overflow_timeout": 0.0, "minimum_required_space": 0}
    with Channel(path, checkpoint_on_close=False, **options) as channel:
        put(channel, *numbered(0, 3))
        put(channel, *numbered(3, 6))  # to disk
    commit = next(f for f in frames(path) if f.header.type == FrameType.COMMIT and f.header.count == 6)
    assert frames(path)[-1].offset > commit.end, "the close has moved what was in memory"
    flip(log_file(path), commit.offset + 20)
    assert repaired(path).loss.lost == ()
    with Channel(path, create=False, minimum_required_space=0) as channel:
        assert peek(channel) == numbered(0, 9)
