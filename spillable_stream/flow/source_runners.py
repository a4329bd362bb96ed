"""What runs a source: a thread that asks it for events, or the start and the stop of its own threads."""

from __future__ import annotations

import threading
import time

from spillable_stream.error_text import text_of
from spillable_stream.errors import SpillableError
from spillable_stream.flow.failures import FAILURES
from spillable_stream.flow.runner import Backoff, RoundsRunner
from spillable_stream.flow.sources.base import BatchProcessor, EventSource, PolledSource, SourceBase, Status
from spillable_stream.log_records import log_of
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["EventRunner", "PolledRunner", "source_runner"]

_log = log_of("spillable_stream.flow")

_NO_THREAD_SECONDS = 0.05  # between two tries to start a thread


class PolledRunner(RoundsRunner):
    """Asks a source for events again and again, in a thread.

    Args:
        source: the source.
        processor: where its batches go.
        name: its name, for threads and messages.
    """

    def __init__(self, source: PolledSource, processor: BatchProcessor, name: str) -> None:
        super().__init__(name)
        self.source: PolledSource = source
        self.processor: BatchProcessor = processor
        source.name = name
        self._backoff = Backoff(source.backoff_sleep_increment, source.max_backoff_sleep)
        self._refused_ms = source.first_refused_wait

    @property
    def components(self) -> frozenset[str]:
        """See `Runner.components`."""
        return frozenset([self.name])

    @property
    def finished(self) -> bool:
        """See `Runner.finished`."""
        return self.source.finished

    def _prepare(self) -> None:
        self.source.open(self.processor)
        self.source.counters.started()

    def round(self) -> float:
        """Ask the source once, and return how long to wait, in seconds."""
        try:
            status = self.source.poll(self.processor)
        except SpillableError as e:
            self._say(e)
            self.source.counters.pauses.begin(self, self.failure)
            wait_ms = self._refused_ms
            self._refused_ms = min(2 * wait_ms, self.source.max_refused_wait)
            return wait_ms / 1000
        except FAILURES as e:
            wait_seconds = self.source.max_backoff_sleep / 1000
            if not self.failure:
                _log.of(self.name, seconds=wait_seconds).exception(
                    "the source failed; it is asked again in %g s", wait_seconds
                )
            self._fails(e)
            return wait_seconds
        self._works()
        self._refused_ms = self.source.first_refused_wait
        self.source.counters.pauses.end(self)
        if status is Status.READY:
            self._backoff.ready()
            return 0.0
        return self._backoff.nothing()

    def _say(self, e: Exception) -> None:
        if not self.failure:
            _log.of(self.name).warning("a batch waits: %s", text_of(e))
        self._fails(e)

    def _rest(self, seconds: float) -> None:
        self.source.rest(seconds, self._stopping)

    def _close(self) -> None:
        self.source.counters.pauses.end(self)
        try:
            self.source.close()
        finally:
            self.source.counters.stopped()


class EventRunner:
    """Starts and stops a source that has threads or tasks of its own.

    Args:
        source: the source.
        processor: where its batches go.
        name: its name, for threads and messages.
    """

    wait_seconds: float = 0.0

    def __init__(self, source: EventSource, processor: BatchProcessor, name: str) -> None:
        self.source: EventSource = source
        self.processor: BatchProcessor = processor
        self.name: str = name
        source.name = name
        self._mutex = threading.Lock()  # of the source's start and stop
        self._stopper: threading.Thread | None = None
        self._is_asked_to_stop = False

    @property
    def components(self) -> frozenset[str]:
        """See `Runner.components`."""
        return frozenset([self.name])

    @property
    def may_start(self) -> bool:
        """See `Runner.may_start`."""
        return True

    @property
    def alive(self) -> bool:
        """See `Runner.alive`."""
        return self.source.alive

    @property
    def finished(self) -> bool:
        """See `Runner.finished`."""
        return self.source.finished

    @property
    def trouble(self) -> str:
        """See `Runner.trouble`."""
        return self.source.counters.pauses.trouble

    def start(self) -> None:
        """Start the source."""
        with self._mutex:
            if not self._is_asked_to_stop:
                self.source.start(self.processor)
                self.source.counters.started()

    def begin_stop(self) -> None:
        """See `Runner.begin_stop`."""
        was_asked, self._is_asked_to_stop = self._is_asked_to_stop, True
        if self._stopper is not None:
            return
        stopper = threading.Thread(target=self._stop, name=f"{self.name}-stop", daemon=True)
        try:
            start_thread(stopper)
        except NoThreadError as e:  # `stop` tries again: others end, and their threads with them
            if not was_asked:
                _log.of(self.name).warning("it can't be stopped yet: %s", e)
            return
        self._stopper = stopper

    def _stop(self) -> None:
        with self._mutex:
            try:
                self.source.stop()
            finally:
                self.source.counters.stopped()

    def stop(self, timeout_seconds: float) -> bool:
        """See `Runner.stop`."""
        end = time.monotonic() + timeout_seconds
        self.begin_stop()
        while self._stopper is None:
            if time.monotonic() >= end:
                return False
            time.sleep(_NO_THREAD_SECONDS)
            self.begin_stop()
        self._stopper.join(max(0.0, end - time.monotonic()))
        return not self._stopper.is_alive()


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
