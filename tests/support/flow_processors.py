"""A processor that keeps what sources put, and fails when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from spillable_stream.errors import ChannelFullError, DeliveryError
from spillable_stream.flow.sources.base import Noted


@dataclass
class Routed:
    """A batch, and the channels that have it."""

    batch: pa.RecordBatch
    done: set[int] = field(default_factory=set)


@dataclass
class KeptBatches:
    """Channels as a source sees them: each has every batch once, and refuses while it is full."""

    channels: int = 1
    batches: list[list[pa.RecordBatch]] = field(default_factory=list)
    full: set[int] = field(default_factory=set)
    most_events: int = 10_000
    _pending: Routed | None = None

    def __post_init__(self) -> None:
        self.batches = [[] for _ in range(self.channels)]
        self._numbers = [0] * self.channels
        self._note = b""

    def newest(self, is_settled: Callable[[int], bool] | None = None) -> Noted | None:
        """As a new process: what was pending is known by what the channels have."""
        self._pending = None
        number = max(self._numbers)
        return Noted(number, self._note, min(self._numbers) == number) if number else None

    def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
        if number is None:
            self.deliver(self.route(events))
            return
        if self._pending is None:
            self._pending = self.route(events)
            self._pending.done = {i for i, n in enumerate(self._numbers) if n >= number}
        try:
            self.deliver(self._pending)
        finally:
            for i in self._pending.done:
                if self._numbers[i] < number:
                    self._numbers[i], self._note = number, note
        self._pending = None

    def route(self, events: pa.RecordBatch) -> Routed:
        return Routed(events)

    def deliver(self, routed: Routed) -> None:
        failures: dict[str, Exception] = {}
        for i in range(self.channels):
            if i in routed.done:
                continue
            if i in self.full:
                failures[f"c{i}"] = ChannelFullError(f"the channel {i} is full")
                continue
            routed.batch.validate(full=True)
            self.batches[i].append(routed.batch)
            routed.done.add(i)
        if failures:
            raise DeliveryError(f"a batch is not in {', '.join(failures)}: {next(iter(failures.values()))}", failures)

    def bodies(self, channel: int = 0) -> list[bytes]:
        return [body for batch in self.batches[channel] for body in batch.column(1).to_pylist()]

    def headers(self, channel: int = 0) -> list[dict[str, str]]:
        return [dict(pairs) for batch in self.batches[channel] for pairs in batch.column(0).to_pylist()]


@dataclass
class WaitingBatches(KeptBatches):
    """Such channels, which take a batch only when they may.

    Attributes:
        putting: set as a batch comes.
        go_on: to be set for batches to be taken.
    """

    putting: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def deliver(self, routed: Routed) -> None:
        self.putting.set()
        assert self.go_on.wait(60)
        super().deliver(routed)
