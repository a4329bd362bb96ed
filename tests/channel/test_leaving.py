"""What a handle does before its files are closed: old events leave, a checkpoint is made, memory goes to disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.channel.leaving import leave, move_to_disk
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


def checkpoints(channel: Channel) -> int:
    """Return how many checkpoints there are."""
    return len(list(channel.engine().layout.checkpoint_dir.iterdir()))


@pytest.mark.parametrize("given", [True, False])
def test_a_checkpoint_is_made_if_asked(open_channel: Open, given: bool) -> None:
    channel = open_channel()
    put(channel, b"1")
    before = checkpoints(channel)
    leave(channel.engine(), checkpoint=given)
    assert checkpoints(channel) - before == given


def test_the_last_handle_moves_memory_to_disk_and_another_one_does_not(open_channel: Open) -> None:
    one, two = open_channel(memory_capacity=100), open_channel()
    put(one, *numbered(0, 3))
    leave(one.engine())
    assert two.stats().drain_order == [3]
    one.close()
    leave(two.engine(), flush=False)
    assert two.stats().drain_order == [3]
    leave(two.engine())
    assert two.stats().drain_order == [-3]


def test_old_events_leave_before_the_checkpoint(open_channel: Open) -> None:
    channel = open_channel(retention_bytes=1 << 20)
    channel.engine().upkeep.stop()
    for _ in range(40):
        put(channel, bytes(64 << 10))
        take(channel)
    leave(channel.engine(), checkpoint=True)
    engine = channel.engine()
    assert engine.state.first_kept > 1
    assert engine.layout.log_files(engine.fs)[0] > 1


def test_a_memory_tier_that_is_empty_is_removed(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, b"1")
    take(channel)
    assert channel.engine().become_last()
    move_to_disk(channel.engine())
    assert not channel.engine().memory.exists()
