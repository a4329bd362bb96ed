"""The files that an agent's configuration comes from, so that they can be read again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.model import AgentConfig, Finding, Loaded
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.loading import load
from spillable_stream.shown_value import shown

__all__ = ["ConfigurationFiles", "not_running", "reasons_against", "runnable"]


@dataclass(slots=True)
class ConfigurationFiles:
    """Files, and how they are read.

    Args:
        paths: the files; a later one wins.
        name: the agent.
        system: what ``${sys:X}`` stands for.
        environment: what ``${env:X}`` stands for; the process's environment by default.
        mapped: names of Java classes, each with a Python class.
        now: the clock, in monotonic seconds; for tests.
    """

    paths: tuple[str, ...]
    name: str
    system: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    mapped: Mapping[str, str] | None = None
    now: Callable[[], float] = time.monotonic
    _seen: tuple[float, ...] = field(default=(), init=False)
    _look_at: float = field(default=0.0, init=False)

    def have_changed(self, every_seconds: float | None) -> bool:
        """Tell whether a file was written since they were read, or since this was told.

        Args:
            every_seconds: how often it looks; None for never.
        """
        if every_seconds is None or self.now() < self._look_at:
            return False
        self._look_at = self.now() + every_seconds
        before, self._seen = self._seen, self._modified()
        return before != self._seen

    def _modified(self) -> tuple[float, ...]:
        """Return when each file was written last."""
        return tuple(map(_modified, self.paths))

    def load(self) -> Loaded:
        """Read the files; raises what `load` raises."""
        self._seen = self._modified()  # before: what is written meanwhile is a change
        return load(
            list(self.paths), name=self.name, system=self.system, environment=self.environment, mapped=self.mapped
        )


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):  # it is not there, or not at this moment, or can never be
        return 0.0


def runnable(loaded: Loaded, name: str) -> AgentConfig:
    """Return an agent if something of it can run.

    Raises:
        OptionError: there is none of this name, or nothing of it can run; the message has the findings.
    """
    config = loaded.agents.get(name)
    if config is not None and config.valid:
        return config
    findings = "\n".join(str(f) for f in loaded.errors)
    if config is not None:
        raise OptionError(f"nothing of the agent {shown(name)} can run\n{findings}".rstrip())
    if any(f.code == "missing-agent" for f in loaded.errors):
        raise OptionError(findings)  # one says it, and which agents there are
    raise OptionError(f"there is no agent {shown(name)} in the files\n{findings}".rstrip())


def not_running(config: AgentConfig) -> list[str]:
    """Return the sources and sinks of an agent that were dropped, each as ``sink k1: the reason``."""
    return [f"{d.kind} {d.name}: {d.reason}" for d in config.dropped if d.kind in (Kind.SOURCE, Kind.SINK)]


def reasons_against(loaded: Loaded, running: AgentConfig, known: Iterable[Finding]) -> list[str]:
    """Return why changed files may not take the place of those that an agent runs from.

    An error costs its component, as at a start, but never one that runs: there is a reason for each new error about the
    files or the agent as a whole, or about a component that runs, and for each source or sink that would be lost.

    Args:
        loaded: the changed files.
        running: what runs of the agent.
        known: the findings in the files that it runs from.
    """
    before = {(f.code, f.component) for f in known}
    new = [f for f in loaded.errors if (f.code, f.component) not in before]
    reasons = [str(f) for f in new if _is_about(running, f.component)]
    if new and not reasons:
        dropped = loaded.agents[running.name].dropped
        flow = (Kind.SOURCE, Kind.SINK)  # the others go with what uses them
        reasons = [
            f"{d.kind} {d.name}: {d.reason}" for d in dropped if d.kind in flow and d.name in _names(running)[d.kind]
        ]
    return reasons


def _is_about(running: AgentConfig, component: str) -> bool:
    parts = component.split(".")
    kind = {"sources": Kind.SOURCE, "channels": Kind.CHANNEL, "sinks": Kind.SINK, "sinkgroups": Kind.SINK_GROUP}.get(
        parts[1] if len(parts) > 2 else ""
    )
    return kind is None or parts[2] in _names(running)[kind]


def _names(running: AgentConfig) -> dict[Kind, set[str]]:
    return {
        Kind.SOURCE: {c.name for c in running.sources},
        Kind.CHANNEL: {c.name for c in running.channels},
        Kind.SINK: {c.name for c in running.sinks},
        Kind.SINK_GROUP: {g.name for g in running.sink_groups},
    }
