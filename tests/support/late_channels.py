"""Optional channels of an agent: one that is open, and one that is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spillable_stream import Channel
from spillable_stream.flow.late_channel import LateChannel
from tests.support.flow_agents import CONFIGURATION, write
from tests.support.waiting import wait_until

__all__ = ["OPTIONAL", "away", "opened_late"]

OPTIONAL = CONFIGURATION + "a1.sources.r1.selector.optional = c2\n"


def away(place: Path) -> Path:
    """Write the file of an agent, and put a file where its optional channel should be."""
    write(place, OPTIONAL)
    (place / "c2").write_text("no directory")
    return place / "c2"


def opened_late(open_channel: Callable[[], Channel], name: str = "c2") -> Channel:
    """Return an optional channel, once it is open."""
    late = LateChannel(name, open_channel)
    late.begin()
    wait_until(lambda: late.is_open)
    return late  # type: ignore[return-value]
