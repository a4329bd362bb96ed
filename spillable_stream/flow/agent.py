"""The agent: sources, channels and sinks that run together, from Python objects or from Flume's files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from spillable_stream.arguments import seconds, text
from spillable_stream.arguments import timeout_seconds as checked_timeout
from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError
from spillable_stream.flow.assembling import Assembling
from spillable_stream.flow.changes import Changes
from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.configuration.model import AgentConfig, Finding, SinkConfig
from spillable_stream.flow.configuration_files import ConfigurationFiles, not_running, runnable
from spillable_stream.flow.exchanges import Exchanges, Reloading
from spillable_stream.flow.failed_channels import FailedChannels, displacement_of
from spillable_stream.flow.running_flow import RunningFlow
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.source_runners import EventRunner, PolledRunner
from spillable_stream.flow.stop_signals import StopSignals
from spillable_stream.flow.supervisor import Supervisor
from spillable_stream.flow.wired import AgentChannels, Wired
from spillable_stream.flow.wiring import SinkGroup, Source, wire
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_names import name_as_in_files
from spillable_stream.quantities import Duration

__all__ = ["Agent"]

_log = log_of("spillable_stream.flow")

_SHUTDOWN_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_WAIT_SECONDS = 0.2  # a signal is noticed within it


class Agent:
    """Runs sources, channels and sinks.

    It starts channels, then sinks, then sources, and stops in the opposite order. What fails is tried again; `troubles`
    says what does not work now. Use it as a context manager, or `run` it.

    Args:
        sources: the sources.
        sinks: the sinks, each with the name of its channel.
        sink_groups: groups of sinks.
        channels: channels by name, beside those of the sources.
        name: the agent's name. A source is known to its channels as ``AGENT.SOURCE``: keep both.
        shutdown_timeout_seconds: how long a stop waits for sources, and for sinks.

    Attributes:
        reload_seconds: how often `wait` looks for changed files; None for never.
        signals: the signals that came while it ran, or waited.
        failed_channels: the channels that a storage failure closed.

    Raises:
        OptionError: a sink names a channel that is not there.
    """

    @checked
    def __init__(
        self,
        *,
        sources: Sequence[Source] = (),
        sinks: Sequence[Sink] = (),
        sink_groups: Sequence[SinkGroup] = (),
        channels: Mapping[str, Channel] | None = None,
        name: str = "agent",
        shutdown_timeout_seconds: Duration = _SHUTDOWN_SECONDS,
    ) -> None:
        self.name: str = text("name", name)
        self.shutdown_timeout_seconds: float = seconds("shutdown_timeout_seconds", shutdown_timeout_seconds)
        wired = wire(name, sources, sinks, sink_groups, channels or {})
        self._flow = RunningFlow(wired, owns_channels=False, must_stop=self._must_stop)
        self._exchanges: Exchanges | None = None  # of an agent of files
        self.failed_channels: FailedChannels = FailedChannels(may_reopen=False)
        self._mutex = threading.RLock()
        self.reload_seconds: float | None = None
        self._asked = threading.Event()
        self.signals: StopSignals = StopSignals()
        self._reloads = 0
        self._started = self._stopped = False
        self._is_up = False  # whether everything was started

    @classmethod
    @checked
    def from_properties(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        name: str,
        system: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        mapped: Mapping[str, str] | None = None,
        shutdown_timeout_seconds: Duration = _SHUTDOWN_SECONDS,
    ) -> Agent:
        """Return the agent that Flume's configuration files describe. Its channels are opened when it starts.

        Args:
            paths: the file, or several of them: a later one wins.
            name: the agent's name in them.
            system: what ``${sys:X}`` stands for, and other options of the command line (``-D``).
            environment: what ``${env:X}`` stands for; the process's environment by default.
            mapped: names of Java classes in the files, each with a Python class, ``module:Class``.
            shutdown_timeout_seconds: see `Agent`.

        Raises:
            OptionError: nothing of the agent can run; the message has the findings.
            OSError: a file can't be read.
        """
        name_as_in_files()
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        files = ConfigurationFiles(tuple(os.fspath(p) for p in given), name, dict(system or {}), environment, mapped)
        agent = cls(name=name, shutdown_timeout_seconds=shutdown_timeout_seconds)
        loaded = files.load()
        config = runnable(loaded, name)
        agent._flow = RunningFlow(Wired(), owns_channels=True, must_stop=agent._must_stop)
        agent._exchanges = Exchanges(
            files, config, loaded.findings, agent._flow, lambda: agent.shutdown_timeout_seconds
        )
        agent.failed_channels = FailedChannels(may_reopen=True)
        return agent

    # ── what it runs ────────────────────────────────────────────────────────────────────────

    @property
    def sources(self) -> Mapping[str, PolledRunner | EventRunner]:
        """The runners of its sources, by name."""
        return self._flow.wired.sources

    @property
    def sinks(self) -> Mapping[str, SinkRunner]:
        """The runners of its sinks and of its groups of sinks, by name."""
        return self._flow.wired.sinks

    @property
    def channels(self) -> AgentChannels:
        """Its channels, by name."""
        return self._flow.wired.channels

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings in the configuration files."""
        return () if self._exchanges is None else self._exchanges.findings

    @property
    def _config(self) -> AgentConfig:
        return AgentConfig(name="") if self._exchanges is None else self._exchanges.config

    @property
    def supervisor(self) -> Supervisor:
        """What watches its runners."""
        return self._flow.supervisor

    # ── life ────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Open the channels, and start sinks and sources. A runner that can't be started is tried again.

        Raises:
            SpillableError: a channel can't be opened; nothing runs then.
        """
        with self._mutex:
            if self._started:
                raise OptionError(f"the agent {self.name} was started before; create another one")
            self._started = True
            if self._exchanges is not None:
                self._exchanges.assemble_all()
            try:
                self._flow.start()
            except BaseException:
                self._stopped = True
                self._flow.stop(self.shutdown_timeout_seconds, may_drain=lambda: False)
                raise
            self._is_up = True
            _log.info("the agent %s has started", self.name, extra=fields(component=self.name))

    def stop(self, *, drain: bool = False) -> bool:
        """Stop sources, then sinks, then close the channels that the agent opened.

        Args:
            drain: whether the sinks first take what is in their channels.

        Returns:
            Whether all have ended within ``shutdown_timeout_seconds``, and all channels are closed. The others end with
            the process, which loses nothing that was acknowledged: a source that hangs in a put has not said that the
            batch is stored.
        """
        if self._started:
            self._asked.set()  # before it waits for a start that hangs
        with self.signals.watched(), self._mutex:
            if not self._started or self._stopped:
                return True
            self._stopped = True
            before = self.signals.ends
            ended = self._flow.stop(
                self.shutdown_timeout_seconds, may_drain=lambda: drain and self.signals.ends == before
            )
            # last: with them open, no other handle must move what is in memory to disk
            ended = (self._exchanges is None or self._exchanges.drop()) and ended
            _log.info("the agent %s has stopped", self.name, extra=fields(component=self.name))
            return ended

    def is_drained(self) -> bool:
        """Whether the sinks have taken everything from their channels, but for what they hold in open files."""
        return self._flow.is_drained()

    def is_finished(self) -> bool:
        """Whether all sources are at their end, and the sinks have taken everything."""
        return self._flow.is_finished()

    def wait(self, timeout_seconds: Duration | None = None) -> bool:
        """Wait until somebody calls `ask_to_stop`, or, in the main thread, until SIGTERM or SIGINT; SIGHUP reloads.

        Meanwhile a channel of the files that a storage failure closed is opened again, and what uses it started anew.

        Args:
            timeout_seconds: how long at most.

        Returns:
            Whether the agent should stop.
        """
        most_seconds = checked_timeout(timeout_seconds)
        end = float("inf") if most_seconds is None else time.monotonic() + most_seconds
        with self.signals.watched():
            while not self._must_stop():
                left = min(_WAIT_SECONDS, end - time.monotonic())
                if left <= 0:
                    return False
                if self._asked.wait(left) or self._must_stop():
                    break
                self._exchange()
        return True

    def _must_stop(self) -> bool:
        return self._asked.is_set() or self.signals.ends > 0

    def ask_to_stop(self) -> None:
        """Let `wait` return."""
        self._asked.set()

    def run(self, *, once: bool = False, drain: bool = False) -> bool:
        """Start, wait, and stop.

        Args:
            once: whether to stop when all sources are at their end and the channels are empty.
            drain: whether the sinks first take what is in their channels.

        Returns:
            Whether all went well: everything ended in time, and with ``once`` nothing failed, every source and sink of
            the files ran, and each source has read and stored all that there was.
        """
        with self.signals.watched():
            self.failed_channels.may_reopen &= not once
            self.start()
            try:
                failed = once and self._fails_on_the_way()
                if not once:
                    self.wait()
                at_end = once and not failed and not self._must_stop()
            except BaseException:  # a source of the user's own may not say whether it is finished
                self.stop()
                raise
            ended = self.stop(drain=drain or at_end)
            return ended and not failed and not (once and self._flow.has_missed())

    def _fails_on_the_way(self) -> bool:
        """Wait until all is at its end, or something failed, and tell whether it did, or could not run."""
        while not (self._must_stop() or self.is_finished() or self._has_failed()):
            self._asked.wait(_LOOK_SECONDS)
        if missing := not_running(self._config):
            _log.error(
                "the agent %s has come to its end without what could not run: %s",
                self.name,
                "; ".join(missing),
                extra=fields(component=self.name),
            )
        return self._has_failed() or bool(missing)

    def _has_failed(self) -> bool:
        """Whether something of it failed, for a run to the end."""
        self.failed_channels.look(self.channels)
        return self.supervisor.has_failed() or self.failed_channels.has_required

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ── reload ──────────────────────────────────────────────────────────────────────────────

    def reload(self) -> Changes | None:
        """Read the files again, and stop and start only what has changed.

        A component with an error does not run, as at the start. The agent refuses files that it can't read, whose
        errors would cost something that runs, or with a channel that it can't open or a component that it can't build:
        then it runs as it did, and no channel has another option than before.

        A stop does not wait for it, where a disk hangs that it needs.

        Returns:
            What changed; None if the files were refused, or there are none, or the agent is being stopped.

        Raises:
            StorageError: the process can have no more threads, or earlier contents of the files hang.
        """
        while (reloading := self._begin_reload()) is not None:
            if not self._is_assembled(reloading.attempt):
                return None
            with self._mutex:
                if self._exchanges is None or not self._runs():
                    return None  # the stop has closed what it opened
                if not self._exchanges.is_outdated(reloading):
                    return self._exchanges.end_read(reloading)
                self._exchanges.end_read(reloading)
        return None

    def _begin_reload(self) -> Reloading | None:
        with self._mutex:
            return self._exchanges.read() if self._exchanges is not None and self._runs() else None

    def _is_assembled(self, attempt: Assembling) -> bool:
        """Wait until something is assembled, and tell whether it is: not where somebody asks the agent to stop."""
        try:
            while not attempt.wait(_WAIT_SECONDS):
                attempt.hangs()  # which says so
                if self._must_stop():
                    attempt.give_up()
                    return False
        except BaseException:  # an interrupt
            attempt.give_up()
            raise
        return True

    def _runs(self) -> bool:
        return self._started and not self._stopped

    def _exchange(self) -> None:
        """Exchange what changed files say, and what uses a failed channel, as far as it is assembled."""
        self.failed_channels.look(self.channels)
        with self._mutex:
            reloads = self.signals.reloads
            if self._exchanges is None or not self._runs():
                self._reloads = reloads
                return
            if self._exchanges.reload_if_due(is_asked=reloads > self._reloads, every_seconds=self.reload_seconds):
                self._reloads = reloads
            self._exchanges.reopen(self.failed_channels)

    # ── what it says ────────────────────────────────────────────────────────────────────────

    def described(self) -> list[str]:
        """Return a line for each component that the files describe and that can run."""
        config = self._config
        lines = [f"channel {c.name}: {c.type}" for c in config.channels]
        lines += [_described(sink) for sink in config.sinks]
        return lines + [f"source {s.name}: {s.type}, to {' '.join(s.channels)}" for s in config.sources]

    def troubles(self) -> dict[str, str]:
        """Return what does not work now: names of sources, sinks and channels, or the agent's, each with the reason."""
        if self._stopped:
            return {self.name: "it is being stopped"}
        if not self._is_up:
            return {self.name: "it has not started yet"}
        self.failed_channels.look(self.channels)
        displaced = {name: why for name, one in self.channels.items() if (why := displacement_of(one.channel))}
        return self.supervisor.troubles() | displaced | self.failed_channels.troubles()


def _described(sink: SinkConfig) -> str:
    if sink.implementation:
        return f"sink {sink.name}: {sink.type}, from {sink.channel}"
    return f'sink {sink.name}: nothing runs, and a Spark query reads {sink.channel} with format("spillable")'
