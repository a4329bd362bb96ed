"""What all sources share: a name, counters, and how a runner or an agent runs them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.error_text import type_and_text
from spillable_stream.errors import SpillableError
from spillable_stream.flow.checked_arguments import Size, checked
from spillable_stream.flow.counters import SourceCounters
from spillable_stream.flow.noted import Noted
from spillable_stream.flow.part_room import TOO_LARGE
from spillable_stream.flow.pieces import halves
from spillable_stream.log_records import fields, log_of

__all__ = [
    "BatchProcessor",
    "EventSource",
    "PolledSource",
    "SourceBase",
    "Status",
    "fitting",
    "lose_behind",
    "put_held",
    "said_of",
]

_log = log_of("spillable_stream.flow")


class Status(Enum):
    """What a source or a sink says after a round: whether the next one should come at once."""

    READY = "ready"
    BACKOFF = "backoff"


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
    """

    numbered = False

    def __init__(self) -> None:
        self.name: str = type(self).__name__
        self.counters: SourceCounters = SourceCounters()
        self.finished: bool = False
        self.missed: deque[str] = deque(maxlen=_MOST_MISSED)

    def miss(self, text: str) -> None:
        """Note that something could not be read or stored; once, however often it is said."""
        if text not in self.missed:
            self.missed.append(text)

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


_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 4.0


def fitting(processor: BatchProcessor, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces that fit a transaction of each channel: a read may bring more than one can hold."""
    most = processor.most_events
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)


def said_of(error: Exception) -> str:
    """Return what an error says; with its type, where it is of somebody's own class."""
    return str(error) if isinstance(error, SpillableError) else f"{type(error).__name__}: {error}"


def put_held(source: SourceBase, processor: BatchProcessor, batch: pa.RecordBatch, stopping: threading.Event) -> bool:
    """Put a batch, again and again while a channel refuses or an interceptor fails; nothing is read meanwhile.

    One that is too large for a transaction of a channel, or for a channel, is put in pieces. An event that is alone too
    large for a channel is lost, and named in the log: what comes behind it does not wait forever.

    Args:
        source: the source, for its counters and its name.
        processor: where the batch goes.
        batch: the events.
        stopping: set when the source is being stopped: then it is tried once.

    Returns:
        Whether the batch is stored; if not, the source is being stopped.
    """
    source.counters.received(batch.num_rows)
    left, pieces = batch.num_rows, deque(fitting(processor, batch))
    while pieces:
        piece = pieces.popleft()
        try:
            _put_piece(source, processor, piece, stopping)
        except TOO_LARGE as e:
            if piece.num_rows > 1:
                pieces.extendleft(reversed(halves(piece)))
                continue
            _lose(source, e)
        except Exception as e:
            source.miss(f"{counted(left, 'event', 'are')} not stored, and lost: {said_of(e)}")
            _log.error(
                "%s: %s not stored, and lost: %s",
                source.name,
                counted(left, "event", "are"),
                said_of(e),
                extra=fields(component=source.name, count=left),
            )
            return False
        left -= piece.num_rows
    return True


def lose_behind(source: SourceBase, events: int) -> None:
    """Count and name events that were read behind a batch that could not be stored when the source was stopped.

    Args:
        source: the source.
        events: how many; none is not said.
    """
    if not events:
        return
    source.counters.event_received_count += events
    text = f"{counted(events, 'event', 'are')} lost, too, behind those that were not stored"
    source.miss(text)
    _log.error("%s: %s", source.name, text, extra=fields(component=source.name, count=events))


def _lose(source: SourceBase, error: SpillableError) -> None:
    """Name an event that is too large for a channel, and that nobody can read again."""
    source.counters.event_read_fail += 1
    source.miss(f"an event is lost, because it is too large for a channel: {error}")
    _log.error(
        "%s: an event is lost, because it is too large for a channel: %s. Or give the source a deadLetter channel, "
        "which gets such events",
        source.name,
        error,
        extra=fields(component=source.name, count=1),
    )


def _put_piece(source: SourceBase, processor: BatchProcessor, batch: pa.RecordBatch, stopping: threading.Event) -> None:
    """Put a piece of a batch.

    Raises:
        PutTooLargeError: a channel could not hold it if it were empty; no channel has any of it. Likewise for the
            other errors of `TOO_LARGE`.
        Exception: the source is being stopped, and a channel refused, or an interceptor or the selector raised.
    """
    wait_seconds = _FIRST_WAIT_SECONDS
    routed = None
    while True:
        try:
            routed = routed or processor.route(batch)
            processor.deliver(routed)
        except TOO_LARGE:  # also of one that waited, whose channel was given less room meanwhile
            source.counters.pauses.end(id(batch))
            raise
        except Exception as e:  # also one of an interceptor's own: the batch must not be lost for it
            is_refused = isinstance(e, SpillableError)
            source.counters.channel_write_fail += is_refused
            source.counters.generic_processing_fail += not is_refused
            source.counters.pauses.begin(id(batch), type_and_text(e))
            if stopping.is_set():
                source.counters.pauses.end(id(batch))
                raise
            _log.warning(
                "%s: a batch waits, and nothing is read meanwhile: %s",
                source.name,
                said_of(e),
                exc_info=None if is_refused or wait_seconds > _FIRST_WAIT_SECONDS else e,
                extra=fields(component=source.name),
            )
            stopping.wait(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
        else:
            source.counters.pauses.end(id(batch))
            source.counters.accepted(batch.num_rows)
            return
