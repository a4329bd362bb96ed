"""What runs a sink, or the sinks of a group: a thread that asks them to take and write."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Protocol

from spillable_stream.channel.channel import Channel
from spillable_stream.error_text import may_be_of_a_signal, text_of
from spillable_stream.errors import SpillableError
from spillable_stream.flow.failures import FAILURES
from spillable_stream.flow.late_channel import ChannelAwayError, is_open
from spillable_stream.flow.runner import Backoff, RoundsRunner, StartWaitsError, doubled_seconds
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.sources.base import Status
from spillable_stream.log_records import log_of

__all__ = ["SinkRunner"]

_log = log_of("spillable_stream.flow")

_FAILED_SECONDS = 5.0
_MOST_FAILED_SECONDS = 60.0
_INCREMENT_MS, _MOST_MS = 1000, 5000
_SLICE_SECONDS = 0.5
_Wired = tuple[Sink, Channel, WrittenEvents]
# Longer than another sink waits for another owner of its group, and less than a supervisor waits for a start.
_NOTES_SECONDS = 14.0


class _Asked(Protocol):
    """A sink, or what chooses among the sinks of a group."""

    @property
    def trouble(self) -> str:
        """What keeps some of the events from being taken though a round may work."""

    def process(self) -> Status:
        """Take and write, or let one of the sinks do so."""


class _SinkProcessor(_Asked, Protocol):
    """Chooses among the sinks of a group."""

    @property
    def standing_by(self) -> Sequence[Sink]:
        """The sinks that are not asked while the others work."""


class SinkRunner(RoundsRunner):
    """Asks a sink, or the sinks of a group through their processor, again and again, in a thread.

    Args:
        sinks: the sinks, each with its channel and the events that the channel's sinks have written.
        processor: what chooses among them; None for one sink.
        name: its name, for threads and messages.
    """

    def __init__(
        self,
        sinks: Sequence[_Wired],
        processor: _SinkProcessor | None,
        name: str,
    ) -> None:
        super().__init__(name)
        self.sinks: list[Sink] = [sink for sink, _, _ in sinks]
        self._wired = list(sinks)
        self._unopened: list[_Wired] = []  # as their channels are away, or they failed
        self._open_again_at: dict[str, float] = {}  # by sink of these that failed, in monotonic seconds
        self._open_failures: dict[str, int] = {}  # of these, in a row
        self._empty: dict[int, Sink] = {}  # by channel that the last round found empty, a sink of it
        self._group = processor
        self._processor: _Asked = processor or self.sinks[0]
        self._backoff = Backoff(_INCREMENT_MS, _MOST_MS)
        self._opened = False
        self._drained = False
        self._is_away = False  # all that kept the last round from working

    @property
    def components(self) -> frozenset[str]:
        """See `Runner.components`."""
        return frozenset(sink.name for sink in self.sinks)

    @property
    def channels(self) -> list[Channel]:
        """The channels that its sinks take from."""
        return [channel for _, channel, _ in self._wired]

    @property
    def asked_channels(self) -> set[str]:
        """The names of the channels that its sinks take from now: not those of sinks that only stand by."""
        standing_by = () if self._group is None else self._group.standing_by
        return {sink.channel_name for sink in self.sinks if sink not in standing_by}

    @property
    def may_start(self) -> bool:
        """See `Runner.may_start`. A group must start once one of its channels is open, which may be a required one."""
        return any(map(is_open, self.channels))

    @property
    def finished(self) -> bool:
        """See `Runner.finished`."""
        return self._drained

    @property
    def trouble(self) -> str:
        """See `Runner.trouble`. That optional channels are away is none, whether they ever were open or not."""
        failing = "" if self._is_away else super().trouble
        return failing or self._processor.trouble or next((s.trouble for s in self.sinks if s.trouble), "")

    def _fails(self, e: Exception | SystemExit) -> None:
        super()._fails(e)
        self._is_away = isinstance(e, ChannelAwayError)

    def _works(self) -> None:
        super()._works()
        self._is_away = False

    def await_notes(self) -> None:
        """Let no sink of the same channels start before these are opened: what they have written must be known."""
        for sink, _, written in self._wired:
            if sink.keeps_note:
                written.await_note(sink.name)

    def open(self) -> None:
        """Open the sinks, before any sink of their channels takes; later those of a group that need not be open yet.

        These are those whose channels are away, and those without a note that fail: the others take over from them.

        Raises:
            ChannelAwayError: the channels of all are.
            Exception: what a sink raises that keeps a note, or the last one where none can be opened.
        """
        self.await_notes()
        self._unopened = [wired for wired in self._wired if not is_open(wired[1])]
        opened: list[Sink] = []
        try:
            for wired in self._wired:
                if wired not in self._unopened:
                    with self._or_later(wired, (ChannelAwayError,) if wired[0].keeps_note else FAILURES):
                        self._open(wired)
                        opened.append(wired[0])
        except BaseException as e:
            for sink in opened:
                _close_sink(sink)
            for sink, _, written in self._wired:
                written.note_fails(sink.name, is_away=isinstance(e, ChannelAwayError))
                if self._stopping.is_set():
                    written.note_is_read(sink.name)  # it does not run any more
            raise
        self._opened = True

    def _open(self, wired: _Wired) -> None:
        sink, channel, written = wired
        sink.open(channel, written)
        written.note_is_read(sink.name)
        self._open_failures.pop(sink.name, None)

    @contextmanager
    def _or_later(
        self, wired: _Wired, kinds: tuple[type[Exception | SystemExit], ...] = (ChannelAwayError,)
    ) -> Iterator[None]:
        """Open a sink of a group later if the block fails in some way: others work without it; raises if none is left.

        Args:
            wired: the sink.
            kinds: such errors; by default, that its channel is away.
        """
        try:
            yield
        except kinds as e:
            self._put_off(wired, e)
            self._unopened.append(wired)
            if len(self._unopened) == len(self._wired):
                self._opened = False
                raise

    def _put_off(self, wired: _Wired, e: Exception | SystemExit) -> None:
        """Let a sink be asked in vain until it is opened."""
        sink, _, written = wired
        is_away = isinstance(e, ChannelAwayError)
        only_waits = is_away or (isinstance(e, StartWaitsError) and not e.has_failed)
        written.note_fails(sink.name, is_away=is_away)
        _close_sink(sink)
        sink.refuse("" if only_waits else text_of(e))
        wait_seconds = _FAILED_SECONDS
        if not only_waits:  # a try may take long, and the others of the group wait for it
            failures = self._open_failures.get(sink.name, 0)
            wait_seconds = doubled_seconds(_FAILED_SECONDS, failures, _MOST_FAILED_SECONDS)
            self._open_failures[sink.name] = failures + 1
        self._open_again_at[sink.name] = time.monotonic() + wait_seconds

    def _open_rest(self) -> None:
        """Open the sinks that could not be opened, as far as they can be now; one that fails holds up no other."""
        for wired in self._opened_now():
            sink, _, written = wired
            try:
                written.require_notes(0.0)
            except SpillableError as e:
                self._put_off(wired, e)
            else:
                self._unopened.remove(wired)
                sink.counters.started()

    def _opened_now(self) -> list[_Wired]:
        """Open what can be, all before any of them takes: each may have written events of the others."""
        found = []
        for wired in self._unopened:
            if is_open(wired[1]) and time.monotonic() >= self._open_again_at.get(wired[0].name, 0.0):
                try:
                    self._open(wired)
                except FAILURES as e:
                    self._put_off(wired, e)
                else:
                    found.append(wired)
        return found

    def _prepare(self) -> None:
        """Open the sinks, and wait until the others of their channels are open.

        Raises:
            ChannelAwayError: the channels of all are away.
            StartWaitsError: another sink of a channel, which may have written some of its events, is not open yet.
        """
        if not self._opened:
            self.open()
        end = time.monotonic() + _NOTES_SECONDS
        for wired in self._open_ones:
            sink, _, written = wired
            with self._or_later(wired):
                written.require_notes(max(0.0, end - time.monotonic()))
                sink.counters.started()

    @property
    def _open_ones(self) -> list[_Wired]:
        return [wired for wired in self._wired if wired not in self._unopened]

    def _close(self) -> None:
        self._opened = False
        for sink, _, _ in self._open_ones:
            _close_sink(sink)
            sink.counters.stopped()

    def round(self) -> float:
        """Ask the sinks once, and return how long to wait, in seconds."""
        for sink in self.sinks:
            sink.found_nothing = False  # a processor does not ask all of them in each round
        try:
            if self._unopened:
                self._open_rest()
            status = self._processor.process()
        except FAILURES as e:
            self._drained = False
            if not self.failure or (self._is_away and not isinstance(e, ChannelAwayError)):
                _log.of(self.name).log(
                    logging.WARNING if isinstance(e, SpillableError) else logging.ERROR,
                    "the events are back in the channel, and are tried again: %s",
                    text_of(e),
                    exc_info=None if isinstance(e, SpillableError) else e,
                )
            self._fails(e)
            return _FAILED_SECONDS
        self._works()
        if status is Status.READY:
            self._drained = False
            self._backoff.ready()
            return 0.0
        self._empty = {id(channel): sink for sink, channel, _ in self._wired if sink.found_nothing}
        asked = self.asked_channels
        self._drained = all(id(c) in self._empty for sink, c, _ in self._wired if sink.channel_name in asked)
        due = min(sink.due_seconds() for sink in self.sinks)
        return min(self._backoff.nothing(), max(due, 0.001))

    def _rest(self, seconds: float) -> None:
        """Wait, but not for the whole time if events come to a channel that was found empty."""
        if not self._empty:
            self._stopping.wait(seconds)
            return
        end, slice_seconds = time.monotonic() + seconds, _SLICE_SECONDS / len(self._empty)
        for sink in cycle(self._empty.values()):
            left = end - time.monotonic()
            try:
                if left <= 0 or self._stopping.is_set() or sink.wait(min(left, slice_seconds)):
                    return
            except ChannelAwayError:
                self._stopping.wait(max(0.0, end - time.monotonic()))
                return

    def begin_stop(self) -> None:
        """See `Runner.begin_stop`."""
        super().begin_stop()
        for sink, _, written in self._wired:
            written.note_is_read(sink.name)

    def stop(self, timeout_seconds: float) -> bool:
        """See `Runner.stop`."""
        ended = super().stop(timeout_seconds)
        if ended and self._opened:  # it waited for another one, and did not start
            self._close()
        return ended


def _close_sink(sink: Sink) -> None:
    try:
        sink.close()
    except FAILURES as e:
        if may_be_of_a_signal(e):
            raise
        _log.of(sink.name).exception("the sink could not be closed")
