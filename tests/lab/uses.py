"""What is done with a handle under which something has changed: the uses of the tests of paths, strays and heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream import Channel
from tests.lab.contents import CONSUMERS
from tests.lab.workload import CONFIGURATIONS, OPTIONS
from tests.support.events import put, take

__all__ = ["TIERS", "USES", "options_of", "roll"]

TIERS = pytest.mark.parametrize("configuration", ["disk", "small memory"])


def options_of(configuration: str) -> dict[str, Any]:
    """Return the options of a channel whose handles are refused soon, and create no checkpoint by themselves."""
    return {**OPTIONS, **CONFIGURATIONS[configuration], "checkpoint_interval": 1 << 50, "lock_timeout": 0.5}


def roll(channel: Channel) -> None:
    """Begin a new data file."""
    engine = channel.engine()
    with engine.committing():
        engine.log.tiers.disk.roll(engine.state.small)


USES: dict[str, Callable[[Channel], object]] = {
    "put": lambda channel: put(channel, b"too late"),
    "a staged put": lambda channel: put(channel, b"x" * 20_000),
    "take": lambda channel: take(channel, 2, CONSUMERS),
    "checkpoint": Channel.checkpoint,
    "roll": roll,
    "flush": Channel.flush,
}
