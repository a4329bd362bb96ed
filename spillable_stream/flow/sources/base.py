"""What all sources share: a name, counters, and how a runner or an agent runs them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from spillable_stream.flow.checked_arguments import Size, checked
from spillable_stream.flow.counters import SourceCounters
from spillable_stream.flow.sources.unstored import Unstored

__all__ = [
    "BatchProcessor",
    "EventSource",
    "Noted",
    "PolledSource",
    "SourceBase",
    "Status",
]


class Status(Enum):
    """What a source or a sink says after a round: whether the next one should come at once."""

    READY = "ready"
    BACKOFF = "backoff"


class Noted(NamedTuple):
    """The newest numbered batch that a source's channels have.

    Args:
        number: its number.
        note: what the source said about it.
        complete: whether all channels that must have a part of it have theirs. If not, it must be put again, under its
            number, before the next one.
    """

    number: int
    note: bytes
    complete: bool


class BatchProcessor(Protocol):
    """Where a source puts its batches: see `ChannelProcessor`."""

    @property
    def most_events(self) -> int:
        """How many events a batch can have at most."""

    def newest(self, is_settled: Callable[[int], bool] | None = None) -> Noted | None:
        """Return the newest numbered batch that one of the channels has."""

    def process(self, events: pa.RecordBatch, *, number: int | None = None, note: bytes = b"") -> object:
        """Put a batch into all its channels, or raise; a repetition of a number puts only what is missing."""

    def route(self, events: pa.RecordBatch) -> Any:
        """Run interceptors and selector on a batch."""

    def deliver(self, routed: Any) -> object:
        """Put a routed batch into its channels, or raise; then the same one again."""


_MOST_MISSED = 20


class SourceBase:
    """A source. A reload builds one while that before it still runs, so the constructor opens nothing.

    Attributes:
        name: its name, which messages and counters say; an agent's source is ``AGENT.SOURCE``.
        counters: what it counts.
        numbered: whether it can read its input again, so that its batches are numbered and each is stored once.
        finished: whether no event will come any more: a run with ``--once`` ends when all sources say so.
        missed: what it could not read or store, in words, the last of it: a run with ``--once`` has failed then.
        unstored: what it has read and could not store when it was stopped.
    """

    numbered = False

    def __init__(self) -> None:
        self.name: str = type(self).__name__
        self.counters: SourceCounters = SourceCounters()
        self.finished: bool = False
        self.missed: deque[str] = deque(maxlen=_MOST_MISSED)
        self.unstored: Unstored = Unstored()

    def miss(self, text: str) -> None:
        """Note that something could not be read or stored; once, however often it is said."""
        if text not in self.missed:
            self.missed.append(text)

    def succeed(self, before: SourceBase, *, is_at_end: bool) -> bool:
        """Take the place of a source that is being stopped, before the start, and tell whether it puts what that held.

        Args:
            before: the other source.
            is_at_end: whether it must read nothing, since the other one has come to its end.
        """
        return False

    def take_unstored(self, before: SourceBase) -> None:
        """Take over what another source could not store, and what it has yet to hand over."""
        self.unstored = before.unstored

    def lag(self) -> Mapping[str, float]:
        """Return how much it has yet to read, under the names of monitoring, such as ``LagBytes``; {} if unknown."""
        return {}


class PolledSource(SourceBase):
    """A source that a thread asks for events, again and again.

    Attributes:
        backoff_sleep_increment: by how much a runner waits longer after each round without events, in milliseconds.
        max_backoff_sleep: how long it waits at most, in milliseconds.
        first_refused_wait: how long it waits when a channel refuses a batch, in milliseconds; then twice as long.
        max_refused_wait: how long at most, in milliseconds.
    """

    # Flume's runner tries again at once, which keeps a core busy where a channel does not wait for room.
    first_refused_wait: int = 100
    max_refused_wait = 4000

    @checked
    def __init__(self, backoff_sleep_increment: Size = 1000, max_backoff_sleep: Size = 5000) -> None:
        super().__init__()
        self.backoff_sleep_increment = backoff_sleep_increment
        self.max_backoff_sleep = max_backoff_sleep

    def open(self, processor: BatchProcessor) -> None:
        """Open what the source reads, before the first `poll`.

        Args:
            processor: where its batches will go; it knows which one came last (`BatchProcessor.newest`).
        """

    def poll(self, processor: BatchProcessor) -> Status:
        """Read a batch, put it, and say whether there may be more.

        Args:
            processor: where the batch goes.

        Returns:
            Whether the next round should come at once.

        Raises:
            ChannelError: a required channel refused; the batch is held, and the next call puts it again.
        """
        raise NotImplementedError

    def rest(self, seconds: float, stopping: threading.Event) -> None:
        """Wait before the next round, where the last one found nothing: for some seconds, or until there may be more.

        Args:
            seconds: how long at most.
            stopping: ends the wait when it is set.
        """
        stopping.wait(seconds)

    def close(self) -> None:
        """Close what `open` opened; events that were read and not put are read again, where the source can."""


class EventSource(SourceBase):
    """A source with threads or tasks of its own."""

    def start(self, processor: BatchProcessor) -> None:
        """Begin to read and to put; returns when the source is ready.

        Args:
            processor: where its batches go.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Stop reading, finish the batch under way, and return."""
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """Whether it still works: a supervisor starts one again that is not, unless it is finished."""
        raise NotImplementedError
