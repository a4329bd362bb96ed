"""What runs a source or sinks: a thread, how long it waits when there is nothing to do, and how it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import SpillableError
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.sources.base import BatchProcessor, EventSource, PolledSource, SourceBase, Status
from spillable_stream.log_records import fields

__all__ = ["Backoff", "EventRunner", "PolledRunner", "Runner", "SinkRunner", "source_runner"]

_log = logging.getLogger("spillable_stream.flow")

_FAILED_SECONDS = 5.0
_SINK_INCREMENT_MS, _SINK_MOST_MS = 1000, 5000
_SLICE_SECONDS = 0.5


class Backoff:
    """How long a runner waits: Flume's numbers.

    Args:
        increment_ms: by how much longer after each round without events.
        most_ms: how long at most.
    """

    def __init__(self, increment_ms: int, most_ms: int) -> None:
        self._increment_ms, self._most_ms = increment_ms, most_ms
        self._rounds = 0

    def ready(self) -> None:
        """Note a round with events."""
        self._rounds = 0

    def nothing(self) -> float:
        """Note a round without events, and return how long to wait, in seconds."""
        self._rounds += 1
        return min(self._rounds * self._increment_ms, self._most_ms) / 1000


class Runner(Protocol):
    """Something that an agent starts, watches and stops."""

    name: str

    @property
    def alive(self) -> bool:
        """Whether it works; one that does not is started again, unless it is finished."""

    @property
    def finished(self) -> bool:
        """Whether it is at its end: no event will come any more, or there is none now."""

    @property
    def wait_seconds(self) -> float:
        """How long it waits before its next round, now; 0 while it works."""

    @property
    def trouble(self) -> str:
        """What keeps it from working now, in words; empty if nothing does."""

    def start(self) -> None:
        """Start it; raises what keeps it from starting."""

    def begin_stop(self) -> None:
        """Ask it to stop; returns at once."""

    def stop(self, timeout_seconds: float) -> bool:
        """Stop it, and tell whether it has ended within the time."""


class _Thread:
    """A thread that works in rounds until it is asked to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble: str = ""
        self.wait_seconds = 0.0

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, run: Callable[[], None]) -> None:
        self.stopping.clear()
        self._thread = threading.Thread(target=run, name=self.name, daemon=True)
        self._thread.start()

    def end(self, timeout_seconds: float) -> bool:
        self.stopping.set()
        if self._thread is None:
            return True
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            return False
        self._thread = None
        return True


class PolledRunner:
    """Asks a source for events again and again, in a thread.

    Args:
        source: the source.
        processor: where its batches go.
        name: its name, for threads and messages.
    """

    def __init__(self, source: PolledSource, processor: BatchProcessor, name: str) -> None:
        self.source: PolledSource = source
        self.processor: BatchProcessor = processor
        self.name: str = name
        source.name = name
        self._thread = _Thread(name)
        self._backoff = Backoff(source.backoff_sleep_increment, source.max_backoff_sleep)
        self._refused_ms = source.first_refused_wait

    @property
    def alive(self) -> bool:
        """See `Runner.alive`."""
        return self._thread.alive

    @property
    def finished(self) -> bool:
        """See `Runner.finished`."""
        return self.source.finished

    @property
    def wait_seconds(self) -> float:
        """See `Runner.wait_seconds`."""
        return self._thread.wait_seconds

    @property
    def trouble(self) -> str:
        """See `Runner.trouble`."""
        return self._thread.trouble

    def start(self) -> None:
        """Open the source, and start the thread."""
        self.source.open(self.processor)
        self.source.counters.started()
        self._thread.begin(self._run)

    def _run(self) -> None:
        try:
            while not self._thread.stopping.is_set():
                self._thread.wait_seconds = self.round()
                if self._thread.trouble:
                    self._thread.stopping.wait(self._thread.wait_seconds)
                elif self._thread.wait_seconds:
                    self.source.rest(self._thread.wait_seconds, self._thread.stopping)
                self._thread.wait_seconds = 0.0
        finally:
            self._thread.wait_seconds = 0.0
            self.source.counters.pauses.end(self)
            self.source.close()
            self.source.counters.stopped()

    def round(self) -> float:
        """Ask the source once, and return how long to wait, in seconds."""
        try:
            status = self.source.poll(self.processor)
        except SpillableError as e:
            self._say(e)
            self.source.counters.pauses.begin(self)
            wait_ms = self._refused_ms
            self._refused_ms = min(2 * wait_ms, self.source.max_refused_wait)
            return wait_ms / 1000
        except Exception as e:
            self._say(e)
            _log.exception(
                "%s: the source failed; it is asked again in %g s",
                self.name,
                self.source.max_backoff_sleep / 1000,
                extra=fields(component=self.name, seconds=self.source.max_backoff_sleep / 1000),
            )
            return self.source.max_backoff_sleep / 1000
        self._thread.trouble, self._refused_ms = "", self.source.first_refused_wait
        self.source.counters.pauses.end(self)
        if status is Status.READY:
            self._backoff.ready()
            return 0.0
        return self._backoff.nothing()

    def _say(self, e: Exception) -> None:
        if not self._thread.trouble:
            _log.warning("%s: a batch waits: %s", self.name, e, extra=fields(component=self.name))
        self._thread.trouble = f"{type(e).__name__}: {e}"

    def begin_stop(self) -> None:
        """See `Runner.begin_stop`."""
        self._thread.stopping.set()

    def stop(self, timeout_seconds: float) -> bool:
        """See `Runner.stop`."""
        return self._thread.end(timeout_seconds)


class EventRunner:
    """Starts and stops a source that has threads or tasks of its own.

    Args:
        source: the source.
        processor: where its batches go.
        name: its name, for threads and messages.
    """

    trouble = ""
    wait_seconds: float = 0.0

    def __init__(self, source: EventSource, processor: BatchProcessor, name: str) -> None:
        self.source: EventSource = source
        self.processor: BatchProcessor = processor
        self.name: str = name
        source.name = name
        self._stopper: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """See `Runner.alive`."""
        return self.source.alive

    @property
    def finished(self) -> bool:
        """See `Runner.finished`."""
        return self.source.finished

    def start(self) -> None:
        """Start the source."""
        self.source.start(self.processor)
        self.source.counters.started()

    def begin_stop(self) -> None:
        """See `Runner.begin_stop`."""
        if self._stopper is None:
            self._stopper = threading.Thread(target=self.source.stop, name=f"{self.name}-stop", daemon=True)
            self._stopper.start()

    def stop(self, timeout_seconds: float) -> bool:
        """See `Runner.stop`."""
        self.begin_stop()
        assert self._stopper is not None
        self._stopper.join(timeout_seconds)
        if self._stopper.is_alive():
            return False
        self._stopper = None
        self.source.counters.stopped()
        return True


def source_runner(source: SourceBase, processor: BatchProcessor, name: str) -> PolledRunner | EventRunner:
    """Return what runs a source.

    Raises:
        TypeError: it is not a source.
    """
    if isinstance(source, PolledSource):
        return PolledRunner(source, processor, name)
    if isinstance(source, EventSource):
        return EventRunner(source, processor, name)
    raise TypeError(f"{type(source).__name__} is neither a PolledSource nor an EventSource; make it one of them")


class _SinkProcessor(Protocol):
    """Chooses among the sinks of a group."""

    def process(self) -> Status:
        """Ask one of the sinks."""


class SinkRunner:
    """Asks a sink, or the sinks of a group through their processor, again and again, in a thread.

    Args:
        sinks: the sinks, each with its channel and the events that the channel's sinks have written.
        processor: what chooses among them; None for one sink.
        name: its name, for threads and messages.
    """

    def __init__(
        self,
        sinks: Sequence[tuple[Sink, Channel, WrittenEvents]],
        processor: _SinkProcessor | None,
        name: str,
    ) -> None:
        self.sinks: list[Sink] = [sink for sink, _, _ in sinks]
        self.name = name
        self._places = list(sinks)
        self._processor: _SinkProcessor = processor or self.sinks[0]
        self._thread = _Thread(name)
        self._backoff = Backoff(_SINK_INCREMENT_MS, _SINK_MOST_MS)
        self._opened = False
        self._drained = False

    @property
    def alive(self) -> bool:
        """See `Runner.alive`."""
        return self._thread.alive

    @property
    def finished(self) -> bool:
        """See `Runner.finished`."""
        return self._drained

    @property
    def wait_seconds(self) -> float:
        """See `Runner.wait_seconds`."""
        return self._thread.wait_seconds

    @property
    def trouble(self) -> str:
        """See `Runner.trouble`."""
        return self._thread.trouble or next((s.trouble for s in self.sinks if s.trouble), "")

    def open(self) -> None:
        """Open the sinks, before any sink of their channels takes: what they have written must be known."""
        for sink, channel, written in self._places:
            sink.open(channel, written)
        self._opened = True

    def start(self) -> None:
        """Open the sinks, and start the thread."""
        if not self._opened:
            self.open()
        for sink in self.sinks:
            sink.counters.started()
        self._thread.begin(self._run)

    def _run(self) -> None:
        try:
            while not self._thread.stopping.is_set():
                self._thread.wait_seconds = self.round()
                self._wait(self._thread.wait_seconds)
                self._thread.wait_seconds = 0.0
        finally:
            self._thread.wait_seconds = 0.0
            self._opened = False
            for sink in self.sinks:
                try:
                    sink.close()
                except Exception:
                    _log.exception("%s: the sink could not be closed", sink.name, extra=fields(component=sink.name))
                sink.counters.stopped()

    def round(self) -> float:
        """Ask the sinks once, and return how long to wait, in seconds."""
        try:
            status = self._processor.process()
        except Exception as e:
            self._drained = False
            if not self._thread.trouble:
                _log.log(
                    logging.WARNING if isinstance(e, SpillableError) else logging.ERROR,
                    "%s: the events are back in the channel, and are tried again: %s", self.name, e,
                    exc_info=None if isinstance(e, SpillableError) else e,
                    extra=fields(component=self.name),
                )  # fmt: skip
            self._thread.trouble = f"{type(e).__name__}: {e}"
            return _FAILED_SECONDS
        self._thread.trouble = ""
        if status is Status.READY:
            self._drained = False
            self._backoff.ready()
            return 0.0
        self._drained = all(sink.found_nothing for sink in self.sinks)
        due = min(sink.due_seconds() for sink in self.sinks)
        return min(self._backoff.nothing(), max(due, 0.001))

    def _wait(self, seconds: float) -> None:
        """Wait, but not for the whole time if events come."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._thread.stopping.is_set():
            if not self._drained:
                self._thread.stopping.wait(left)
            elif self.sinks[0].wait(min(left, _SLICE_SECONDS)):
                return

    def begin_stop(self) -> None:
        """See `Runner.begin_stop`."""
        self._thread.stopping.set()

    def stop(self, timeout_seconds: float) -> bool:
        """See `Runner.stop`."""
        return self._thread.end(timeout_seconds)
