"""Logs of objects without an engine: who appends to them and reads them, and time that only sleeping moves."""

from __future__ import annotations

import time

import pyarrow as pa

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.put_request import Put
from spillable_stream.format.batch import EVENT_SCHEMA, encode_batch, encode_schema
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import Frame
from spillable_stream.format.slot import Slot
from spillable_stream.objects.appending import Appending, Attempt, Tail
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.checkpoints import Checkpoints
from spillable_stream.objects.identity import create_identity
from spillable_stream.objects.loading import apply_slot, load
from spillable_stream.objects.read_ahead import ReadAhead
from spillable_stream.objects.slots import Slots
from spillable_stream.objects.store import Store
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState

__all__ = ["FakeTime", "Writer", "frames_of", "new_channel", "new_state", "read_on"]


class FakeTime:
    """A clock that only sleeping moves.

    Attributes:
        now: the time, in seconds.
        slept: how long each sleep was, in seconds.
    """

    def __init__(self) -> None:
        self.now: float = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def time_ns(self) -> int:
        """Return what the wall clock says, which is the real one: a module may ask for both."""
        return time.time_ns()

    def backoff(self, timeout_seconds: float = 10.0) -> Backoff:
        """Return a backoff by this clock, which costs no time."""
        return Backoff(timeout_seconds, self.sleep, self.monotonic)


class Writer:
    """One handle's part of a log: it knows a tail and the state there, and appends.

    Args:
        store: the store as this host sees it.
        channel: the channel's UUID.
        timeout_seconds: for how long requests are tried again, by a clock of its own.
    """

    def __init__(self, store: Store, channel: str, timeout_seconds: float = 10.0) -> None:
        self.slots = Slots(store, channel)
        self.checkpoints = Checkpoints(store, channel)
        self.time = FakeTime()
        self.appending = Appending(self.slots, "a test", self.time.backoff(timeout_seconds))
        self.load()

    def load(self) -> None:
        """Know the log as it is now."""
        loaded = load(self.slots, self.checkpoints)
        self.tail, self.state = loaded.tail, loaded.state

    def follow(self) -> None:
        """Learn what others appended."""
        is_end = False
        while not is_end:
            found, is_end = read_on(self.slots, self.tail)
            for slot in found:
                apply_slot(self.slots, self.state, slot)
                self.tail = self.tail.after(slot)

    def attempt(self, *bodies: bytes) -> Attempt:
        """Plan one transaction of events on what is known."""
        plan = AppendPlan(self.state, Tier.DISK, start=self.appending.begin_bytes(self.tail))
        Put(frames_of(*bodies)).plan(plan)
        return self.appending.attempt(self.tail, plan.entries)

    def put(self, *bodies: bytes) -> Attempt:
        """Append one transaction of events, of which nobody else is in the way, and know it."""
        attempt = self.attempt(*bodies)
        assert self.appending.append(attempt) is None
        self.follow()
        return attempt


def read_on(slots: Slots, tail: Tail) -> tuple[list[Slot], bool]:
    """Return the slots after a tail, as one look finds them, and whether the log ended there."""
    with ReadAhead(slots, tail) as ahead:
        return ahead.chunk()


def frames_of(*bodies: bytes) -> list[Frame]:
    """Return the frame of events, of any size."""
    batch = pa.RecordBatch.from_pylist([{"headers": [], "body": b} for b in bodies], EVENT_SCHEMA)
    return encode_batch(batch, frame_bytes=1 << 30)


def new_state() -> ChannelState:
    """Return the state with which a channel of events begins."""
    return ChannelState(ChannelOptions(), [encode_schema(EVENT_SCHEMA)])


def new_channel(store: Store) -> str:
    """Create a channel in a store, and return its UUID."""
    return create_identity(store, new_state().small(), "a test", Backoff(0))
