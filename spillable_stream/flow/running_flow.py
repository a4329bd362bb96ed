"""The sources, sinks and channels of an agent while they run: how they start, end and are exchanged, in which order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from spillable_stream.channel.channel import Channel
from spillable_stream.counted import counted
from spillable_stream.error_text import text_of
from spillable_stream.errors import SpillableError
from spillable_stream.flow.closing import channels_of, close_at_once, closes
from spillable_stream.flow.failed_channels import failure_of
from spillable_stream.flow.late_channel import is_open, is_optional
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.source_runners import EventRunner, PolledRunner
from spillable_stream.flow.sources.base import SourceBase
from spillable_stream.flow.sources.held import lose_unstored
from spillable_stream.flow.supervisor import Supervisor
from spillable_stream.flow.wired import AgentChannels, Wired, open_late
from spillable_stream.log_records import fields, log_of

__all__ = ["RunningFlow"]

_log = log_of("spillable_stream.flow")

_DRAIN_LOOK_SECONDS = 0.05
_AWAY_SECONDS = 15.0  # for which a drain waits for an optional channel that is away: as long as a start does
_LAST_WAIT_SECONDS = 1.0  # for room, of all that a source has read when it is stopped


class RunningFlow:
    """Starts sinks and then sources, and ends sources, then sinks, then channels.

    Args:
        wired: what it runs at first.
        owns_channels: whether it closes the channels.
        must_stop: whether no start should be waited for any more, and no source be started.

    Attributes:
        wired: what it runs.
        supervisor: what watches the runners.
    """

    def __init__(self, wired: Wired, *, owns_channels: bool, must_stop: Callable[[], bool]) -> None:
        self.wired: Wired = wired
        self.supervisor: Supervisor = Supervisor(must_stop=must_stop)
        self._owns_channels, self._must_stop = owns_channels, must_stop
        self._is_lag_unknown = False  # and that was said
        self._away_since: dict[str, float] = {}  # by optional channel that a drain finds away, in monotonic seconds
        self._hanging: list[Channel] = []  # optional channels in which a put of a source that ended hangs

    # ── start and end ───────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start all, and watch it. A runner that can't be started is tried again."""
        self._start(self.wired)
        self.supervisor.begin()

    def _start(self, wired: Wired) -> None:
        open_late(wired.channels, self._must_stop)
        for runner in wired.sinks.values():
            runner.await_notes()
        self.supervisor.start(*wired.sinks.values())
        if not self._must_stop():  # else nothing may take what they put
            self.supervisor.start(*wired.sources.values())

    def exchange(self, wired: Wired, seconds: float, *, keeps_finished: bool = False) -> None:
        """Run something else: what is in both runs on, and the rest of what runs ends before the new starts.

        Args:
            wired: what to run.
            seconds: how long sources may take to end, then sinks, then channels in which one of these hangs.
            keeps_finished: whether a source at its end that can't continue there is not started again, which would read
                all of its input once more.
        """
        self._end(self.wired.without(wired), seconds)
        if keeps_finished:
            wired = self._with_finished(wired)
        new, before = wired.without(self.wired), {sink.name: sink for sink in _sinks_of(self.wired)}
        for sink in _sinks_of(new):
            if sink.name in before:
                _succeed(sink, before[sink.name])
        self._hand_over(self.wired.without(wired), new, keeps_finished)
        self.wired = wired
        self._start(new)

    def _hand_over(self, old: Wired, new: Wired, keeps_finished: bool) -> None:
        """Let sources put what those before them held; what none does is lost, and the log says so."""
        for name, runner in old.sources.items():
            before, follower = runner.source, new.sources.get(name)
            is_at_end = keeps_finished and _is_finished(runner)
            if follower is None or not _takes_over(follower.source, before, is_at_end=is_at_end):
                lose_unstored(before)

    def _with_finished(self, wired: Wired) -> Wired:
        """Return what to run, with sources of what ran that are at their end, have no numbers and hold nothing."""
        done = {
            name: one
            for name, one in self.wired.sources.items()
            if wired.sources.get(name, one) is not one
            and not one.source.numbered
            and _is_finished(one)
            and not one.source.unstored.events
        }
        return wired._replace(sources={name: done.get(name, one) for name, one in wired.sources.items()})

    def stop(self, seconds: float, may_drain: Callable[[], bool]) -> bool:
        """End all, and watch it no more.

        Args:
            seconds: as for `exchange`.
            may_drain: whether the sinks first take what is in their channels; asked again while they do.

        Returns:
            Whether all have ended in time.
        """
        self.supervisor.end()
        ended = self._end(self.wired, seconds, may_drain)
        for runner in self.wired.sources.values():
            lose_unstored(runner.source)
        return ended

    def _end(self, wired: Wired, seconds: float, may_drain: Callable[[], bool] = lambda: False) -> bool:
        ended = self._end_sources(wired.sources.values(), seconds)
        while (drains := may_drain()) and not self.is_drained():
            self.supervisor.look()  # the thread looks no more, and a sink may have yet to start
            time.sleep(_DRAIN_LOOK_SECONDS)
        if drains:
            self._tell_left()
        ended = not self.supervisor.stop(wired.sinks.values(), seconds) and ended
        return (not self._owns_channels or self._close(wired.channels, seconds)) and ended

    def _end_sources(self, sources: Iterable[PolledRunner | EventRunner], seconds: float) -> bool:
        """Stop sources, and then close their interceptors; those of one that is late when it has ended."""
        stopping = list(sources)
        processors = {r: r.processor for r in stopping if isinstance(r.processor, ChannelProcessor)}
        for processor in processors.values():
            processor.puts.end_waiting(_LAST_WAIT_SECONDS)
        late = self.supervisor.stop(stopping, seconds)
        for runner, processor in processors.items():
            if runner in late:
                close_at_once({runner.name: processor.close}, 0.0)
            else:
                closes(runner.name, processor.close)
                self._hanging += processor.hanging()
        return not late

    def _close(self, channels: AgentChannels, seconds: float) -> bool:
        """Close channels; those in which something may hang in the time of a stop, and tell whether all are closed."""
        hung, closings = [*channels_of(self.supervisor.late()), *self._hanging], dict[str, Callable[[], object]]()
        failed = False
        for name, one in channels.items():
            if one.channel in hung:
                closings[name] = one.channel.close
                continue
            try:
                one.channel.close()
            except Exception as e:
                failed = True
                _log.error(
                    "the channel %s could not be closed: %s", name, text_of(e), extra=fields(component=name)
                )  # fmt: skip
        late = close_at_once(closings, seconds)
        for name in late:
            _log.error(
                "the channel %s could not be closed within %g s; check its disk or its store",
                name,
                seconds,
                extra=fields(component=name, seconds=seconds),
            )
        return not late and not failed

    # ── what it says ────────────────────────────────────────────────────────────────────────

    def is_drained(self) -> bool:
        """Whether the sinks have taken everything from their channels, but for what they hold in open files.

        What only sinks take that stand by does not count: they are not asked while the others of their group work.
        Nor does an optional channel that for fifteen seconds could not say what it has, whether it ever was open or
        not, or one that a storage failure closed. False where another one can't say, as while its store is away.
        """
        return self._left(self._asked_channels()) == {}

    def _asked_channels(self) -> set[str]:
        return {name for runner in self.wired.sinks.values() for name in runner.asked_channels}

    def _left(self, channels: Collection[str]) -> dict[str, int] | None:
        """Return how many events the sinks have yet to take from each channel that has some; None if one can't say."""
        found: dict[str, int] = {}
        name = ""
        try:
            for name in channels:
                if (lag := self._lag_events(name)) is not None:
                    found[name] = lag
            for sink in _sinks_of(self.wired):
                name = sink.channel_name
                if name in found:
                    found[name] -= sink.held_events()
        except Exception as e:
            if not self._is_lag_unknown:
                _log.error(
                    "what the sinks have yet to take from %s can't be told now: %s",
                    name,
                    text_of(e),
                    extra=fields(component=name),
                )
            self._is_lag_unknown = True
            return None
        self._is_lag_unknown = False
        return {name: events for name, events in found.items() if events > 0}

    def _lag_events(self, name: str) -> int | None:
        """Return how many events of a channel its sinks have yet to take; None if it is passed over.

        That is one which is optional, or which a storage failure closed, and has been away for long enough.

        Raises:
            SpillableError: it can't say.
        """
        one = self.wired.channels[name]
        try:
            lag = one.lag_events()
        except SpillableError:
            if not (is_optional(one.channel) or failure_of(one.channel)):
                raise
            if time.monotonic() - self._away_since.setdefault(name, time.monotonic()) < _AWAY_SECONDS:
                raise
            return None
        self._away_since.pop(name, None)
        return lag

    def _tell_left(self) -> None:
        """Say what stays in channels that are away, and in those whose sinks only stand by."""
        every = {sink.channel_name for sink in _sinks_of(self.wired)}
        asked = self._asked_channels()
        for name in asked & self._away_since.keys():
            _log.warning(
                "the channel %s is away, and may keep what its sinks have yet to take",
                name,
                extra=fields(component=name),
            )
        for name, events in (self._left(every - asked) or {}).items():
            _log.warning(
                "the channel %s keeps %s: its sinks stand by while another one of their group works",
                name,
                counted(events, "event"),
                extra=fields(component=name, count=events),
            )

    def is_finished(self) -> bool:
        """Whether all sources are at their end, and the sinks have taken everything."""
        return all(s.finished for s in self.wired.sources.values()) and self.is_drained()

    def has_missed(self) -> bool:
        """Tell whether a source could not read or store something, or a channel was away; says what."""
        sources = self.wired.sources.values()
        missed = [(runner.name, what) for runner in sources for what in list(runner.source.missed)]
        for name, one in self.wired.channels.items():
            if not is_open(one.channel):
                missed.append((name, "this channel was never open"))
            elif name in self._away_since:
                missed.append((name, "this channel was away at the end, and may keep events for its sinks"))
        for name, what in missed:
            _log.of(name).error("%s", what)
        return bool(missed)


def _sinks_of(wired: Wired) -> list[Sink]:
    return [sink for runner in wired.sinks.values() for sink in runner.sinks]


def _is_finished(runner: PolledRunner | EventRunner) -> bool:
    """Tell whether a source is at its end; one that can't say it is started again."""
    try:
        return runner.finished
    except Exception:  # a class of the user's may raise anything
        name = runner.name
        _log.of(name).exception("it can't be told whether it is finished")
        return False


def _succeed(sink: Sink, before: Sink) -> None:
    """Let a sink learn what the one before it knew; one that can't starts without that."""
    try:
        sink.succeed(before)
    except Exception:  # a class of the user's may raise anything
        _log.of(sink.name).exception("it starts without what the sink before it knew")


def _takes_over(source: SourceBase, before: SourceBase, *, is_at_end: bool) -> bool:
    """Tell whether a source puts what the one before it held; one that can't say does not."""
    try:
        return source.succeed(before, is_at_end=is_at_end)
    except Exception:  # a class of the user's may raise anything
        name = source.name
        _log.of(name).exception("it can't take over from the source before it")
        return False
