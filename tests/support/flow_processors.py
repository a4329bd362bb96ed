"""A processor that keeps what sources put, and fails when it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from spillable_stream.errors import ChannelFullError
from spillable_stream.flow.sources.base import Noted


@dataclass
class KeptBatches:
    """Channels as a source sees them: each has every number once, and refuses while it is full."""

    channels: int = 1
    batches: list[list[pa.RecordBatch]] = field(default_factory=list)
    full: set[int] = field(default_factory=set)
    numbers: list[int] = field(default_factory=list)
    notes: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.batches = [[] for _ in range(self.channels)]
        self.numbers = [0] * self.channels
        self.notes = [b""] * self.channels

    def process(self, batch: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> None:
        for i in range(self.channels):
            if number is not None and number <= self.numbers[i]:
                continue
            if i in self.full:
                raise ChannelFullError(f"the channel {i} is full")
            batch.validate(full=True)
            self.batches[i].append(batch)
            if number is not None:
                assert number == self.numbers[i] + 1
                self.numbers[i], self.notes[i] = number, note

    def newest(self) -> Noted | None:
        number = max(self.numbers)
        if number == 0:
            return None
        return Noted(number, self.notes[self.numbers.index(number)], min(self.numbers) == number)

    def bodies(self, channel: int = 0) -> list[bytes]:
        return [body for batch in self.batches[channel] for body in batch.column(1).to_pylist()]

    def headers(self, channel: int = 0) -> list[dict[str, str]]:
        return [dict(pairs) for batch in self.batches[channel] for pairs in batch.column(0).to_pylist()]
