"""What a configuration says, as data: agents, their components, and what was found wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spillable_stream.flow.configuration.options import Kind

__all__ = [
    "AgentConfig",
    "ComponentConfig",
    "DroppedComponent",
    "Finding",
    "Loaded",
    "Severity",
    "SinkConfig",
    "SinkGroupConfig",
    "SourceConfig",
    "described",
]


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"  # a line is ignored, or a component does not run
    WARNING = "warning"  # it runs, but hardly as it was meant
    NOTE = "note"  # it runs as it was meant, and there is something better


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a configuration that its owner should know.

    Args:
        file: the file, as it was given.
        line: the line in it, from 1; 0 when it is about the file as a whole.
        severity: how much it matters.
        code: what it is, in a word or two that stay the same.
        component: the agent, or the component as ``a1.sources.r1``; empty for the file as a whole.
        text: what is wrong, and what to do.
    """

    file: str
    line: int
    severity: Severity
    code: str
    component: str
    text: str

    def __str__(self) -> str:
        component = f" {self.component}" if self.component else ""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.severity} {self.code}{component}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentConfig:
    """A component that runs.

    Args:
        kind: what it is to its agent.
        name: its name in the file.
        type: the type's alias; for a class of the user's own, the type as it is written.
        implementation: ``module:Class``; empty for a channel (see `channel_arguments`), and for Spark's sink.
        keywords: the arguments of the class: those that the file gives, parsed. A value can be a `ComponentConfig`, or
            a tuple of them, that must be built first.
        properties: the properties as the file gives them, without the ones of nested components. Two configurations of
            a component are the same if these, and those of what is nested, are.
        file: where it is described.
        line: the line in it.
    """

    kind: Kind
    name: str
    type: str
    implementation: str
    keywords: Mapping[str, object] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig(ComponentConfig):
    """A source, with what happens to its events.

    Args:
        channels: the names of its channels, as they are written.
        selector: which of them an event goes to.
        interceptors: what its batches pass first, in order.
        dead_letter: the channel for events that can never pass; empty for none.
    """

    channels: tuple[str, ...]
    selector: ComponentConfig
    interceptors: tuple[ComponentConfig, ...] = ()
    dead_letter: str = ""


def described(component: ComponentConfig) -> list[object]:
    """Return what a file says of a component and of those in it, but for its name: texts that no upgrade changes."""
    within = [value for _, value in sorted(component.keywords.items())]
    nested = [c for value in within for c in (value if isinstance(value, tuple) else (value,))]
    of_nested = [described(c) for c in nested if isinstance(c, ComponentConfig)]
    return [component.type, sorted(component.properties.items()), of_nested]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig(ComponentConfig):
    """A sink.

    Args:
        channel: the name of the channel that it takes from.
        dead_letter: the channel for events that it can never write; empty for none.
    """

    channel: str
    dead_letter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkGroupConfig:
    """Sinks that one thread runs.

    Args:
        name: its name in the file.
        sinks: the names of its sinks, as they are written.
        processor: which of them is asked next.
        file: where it is described.
        line: the line in it.
    """

    name: str
    sinks: tuple[str, ...]
    processor: ComponentConfig
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DroppedComponent:
    """A component that does not run.

    Args:
        kind: source, channel, sink or sink group.
        name: its name in the file.
        type: its type as it is written; empty if it has none.
        channels: the channels that it names.
        reason: why it does not run.
    """

    kind: Kind
    name: str
    type: str
    channels: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """An agent: what of it runs, and what does not.

    Args:
        name: its name.
        sources: its sources, in the order of the file's list.
        channels: its channels.
        sinks: its sinks.
        sink_groups: its groups of sinks.
        dropped: the components that do not run.
    """

    name: str
    sources: tuple[SourceConfig, ...] = ()
    channels: tuple[ComponentConfig, ...] = ()
    sinks: tuple[SinkConfig, ...] = ()
    sink_groups: tuple[SinkGroupConfig, ...] = ()
    dropped: tuple[DroppedComponent, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether anything of it can run."""
        return bool(self.channels) and bool(self.sources or self.sinks)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What some configuration files say together.

    Args:
        agents: the agents by name, those with nothing that runs included.
        findings: what was found, in the order of files and lines.
    """

    agents: Mapping[str, AgentConfig]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings of severity error."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)
