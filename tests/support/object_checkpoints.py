"""The checkpoints of a channel in an object store, and what they let go."""

from __future__ import annotations

from spillable_stream import Channel
from spillable_stream.engine.store.object_checkpointing import ObjectCheckpointing
from tests.support.object_channels import store_of
from tests.support.object_logs import FakeTime

__all__ = ["by_clock", "checkpointing_of", "keys", "trimmed_through"]


def checkpointing_of(channel: Channel) -> ObjectCheckpointing:
    """Return what creates the channel's checkpoints."""
    checkpointing = channel.engine().checkpointing
    assert isinstance(checkpointing, ObjectCheckpointing)
    return checkpointing


def by_clock(channel: Channel) -> FakeTime:
    """Return the clock by which the channel's checkpoints are due and objects go from now on."""
    checkpointing, clock = checkpointing_of(channel), FakeTime()
    checkpointing.monotonic = clock.monotonic
    checkpointing._created_at = clock.now
    return clock


def keys(channel: Channel, prefix: str) -> list[int]:
    """Return the numbers of the slots, or of the checkpoints, that are there."""
    return sorted(int(info.key.removeprefix(prefix)) for info in store_of(channel).inner.list(prefix))


def trimmed_through(channel: Channel) -> int:
    """Return the last slot that nobody needs any more."""
    return channel.engine().follow().trimmed.through
