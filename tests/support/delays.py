"""Channels whose clock a test sets, for events that wait."""

from __future__ import annotations

import time
from pathlib import Path

from spillable_stream import Channel, Event
from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.engine.deliveries import Deliveries
from spillable_stream.format.dues import dues_frame, stretch_of
from spillable_stream.format.frame import Frame, FrameType

__all__ = ["Clock", "chunk", "clock_of", "deliver_all", "deliveries_of", "put_late", "side_files"]


class Clock:
    """A wall clock, which a test sets; it begins where the real one is, if it is not told otherwise."""

    def __init__(self, now_ms: int | None = None) -> None:
        self.now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms

    def __call__(self) -> int:
        return self.now_ms

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(1000 * seconds)

    def begin_stretch(self, seconds: float) -> None:
        """Let time pass until what waits so long begins a stretch of time: what is due soon after is in its file."""
        due_ms = self.now_ms + round(1000 * seconds)
        begin_ms, width_ms = stretch_of(due_ms, self.now_ms)
        self.now_ms += begin_ms + width_ms - due_ms


def deliveries_of(channel: Channel) -> Deliveries:
    """Return what delivers the events of a channel on this host."""
    return channel.engine().deliveries


def clock_of(*channels: Channel) -> Clock:
    """Return a new clock by which handles deliver."""
    clock = Clock()
    for channel in channels:
        deliveries_of(channel).clock_ms = clock
    return clock


def deliver_all(channel: Channel) -> None:
    """Deliver all that is due."""
    while deliveries_of(channel).deliver():
        pass


def put_late(channel: Channel, seconds: float, *bodies: bytes) -> None:
    """Put bodies that wait as one transaction."""
    with channel.put_transaction() as tx:
        tx.put_many([Event(b) for b in bodies], deliver_after=seconds)


def side_files(path: Path) -> list[str]:
    """Return the names of the files in which events of a channel on a disk wait."""
    return sorted(file.name for file in (path / "data").glob("delayed-*"))


def chunk(stretch: int, first_ms: int, size_bytes: int = 8) -> DelayedChunk:
    """Return one delayed event, encoded: of the stretch of 10 ms that begins at a time."""
    put = Frame.of(FrameType.PUT, bytes(size_bytes), 1)
    return DelayedChunk(stretch, 10, first_ms, (dues_frame([first_ms]), put))
