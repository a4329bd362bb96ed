"""Channels with events in memory and on disk, and their opens once memory is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.errors import MemoryLossWarning
from tests.support.damage import kill
from tests.support.events import numbered, put

OPTIONS = {"memory_capacity": 19, "overflow_timeout": 0}
RESERVED = 1 << 20  # the last ID that a new memory tier may use


def reopened(path: Path) -> tuple[Channel, MemoryLossWarning]:
    """Open a channel that lost its memory, and return what it warned of too."""
    with pytest.warns(MemoryLossWarning) as caught:
        channel = Channel(path, minimum_required_space=0, checkpoint_on_close=False)
    (warning,) = [w.message for w in caught if isinstance(w.message, MemoryLossWarning)]
    return channel, warning


def spilled(channel: Channel) -> None:
    """Fill a channel: 10 events in memory, 25 on disk, 3 in memory."""
    for count in (10, 25, 3):
        put(channel, *numbered(0, count))
    assert channel.stats().drain_order == [10, -25, 3]


def kill_spilled(open_channel: Callable[..., Channel]) -> None:
    """Fill a channel, and kill its process with events in memory and on disk."""
    channel = open_channel(**OPTIONS)
    spilled(channel)
    kill(channel)


def switching(channel: Channel) -> list[bytes]:
    """Put ten transactions that go to the tiers in turn, and return their bodies."""
    bodies = []
    for i in range(5):
        for count in (3, 20):
            bodies.append(numbered(100 * i, count))
            put(channel, *bodies[-1])
    return [b for some in bodies for b in some]
