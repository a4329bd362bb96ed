"""Both clocks that retention reads, set by a test."""

from __future__ import annotations

import time

import pytest

from spillable_stream import Channel
from spillable_stream.engine.retention import Retention
from spillable_stream.state.wall_clock import ClockReading
from spillable_stream.storage.boot import boot_id

__all__ = ["Clocks", "by_hand"]


class Clocks:
    """Both clocks, which a test sets; they begin where the real wall clock is."""

    def __init__(self, retention: Retention) -> None:
        self.wall_us = retention.read_clocks().wall_us
        self.since_boot_us = 10**12
        self.boot = boot_id().hex()

    def __call__(self) -> ClockReading:
        return ClockReading(self.boot, self.since_boot_us, self.wall_us)

    def pass_by(self, ms: int) -> None:
        """Let time pass."""
        self.wall_us += ms * 1000
        self.since_boot_us += ms * 1000


def by_hand(channel: Channel, stamps: pytest.MonkeyPatch | None = None) -> tuple[Retention, Clocks]:
    """Return a channel's retention, which only the test lets look, and the clocks that it reads.

    With ``stamps``, what is put is stamped by these clocks, too.
    """
    engine = channel.engine()
    engine.upkeep.stop()  # type: ignore[attr-defined]
    retention: Retention = engine.retention  # type: ignore[attr-defined]
    clocks = Clocks(retention)
    retention.read_clocks = clocks
    if stamps is not None:
        stamps.setattr(time, "time_ns", lambda: clocks.wall_us * 1000)
    return retention, clocks
