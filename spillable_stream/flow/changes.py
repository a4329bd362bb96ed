"""What of an agent must be stopped and started when its configuration changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from spillable_stream.flow.configuration.model import AgentConfig, SinkConfig, SinkGroupConfig, SourceConfig
from spillable_stream.flow.optional_channels import optional_channels

__all__ = ["NOTHING", "Changes", "SinkUnit", "changes", "sink_units", "with_users"]


class SinkUnit(NamedTuple):
    """Sinks that one thread runs.

    Args:
        sinks: the sinks.
        group: the group that they are; None for a sink without a group.
    """

    sinks: tuple[SinkConfig, ...]
    group: SinkGroupConfig | None


class Changes(NamedTuple):
    """Names of what changes. Something that is stopped and still in the new configuration is started again."""

    sources: frozenset[str]
    sinks: frozenset[str]
    channels: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.sources or self.sinks or self.channels)

    def __str__(self) -> str:
        kinds = self._asdict().items()
        return "; ".join(f"{kind} {' '.join(sorted(names))}" for kind, names in kinds if names)


NOTHING = Changes(frozenset(), frozenset(), frozenset())


def sink_units(agent: AgentConfig) -> dict[str, SinkUnit]:
    """Return the sinks of an agent as they run, by the name of the group or of the sink."""
    by_name = {sink.name: sink for sink in agent.sinks}
    grouped = {name for group in agent.sink_groups for name in group.sinks}
    units = {
        g.name: SinkUnit(tuple(by_name[name] for name in g.sinks if name in by_name), g) for g in agent.sink_groups
    }
    return units | {sink.name: SinkUnit((sink,), None) for sink in agent.sinks if sink.name not in grouped}


def changes(old: AgentConfig, new: AgentConfig) -> Changes:
    """Return what differs between two configurations of an agent: what is new, gone, or other than it was.

    A component changes with its own properties, and with a channel that it uses. A channel also changes when it becomes
    optional, or is optional no more: what uses it is to know.

    Raises:
        OptionError: a selector can't be built.
    """
    channels = _differ({c.name: c for c in old.channels}, {c.name: c for c in new.channels})
    channels |= optional_channels(old) ^ optional_channels(new)
    sources = _differ({s.name: s for s in old.sources}, {s.name: s for s in new.sources})
    sinks = _differ(sink_units(old), sink_units(new))
    before, after = with_users(old, channels), with_users(new, channels)
    return Changes(before.sources | after.sources | sources, before.sinks | after.sinks | sinks, frozenset(channels))


def with_users(agent: AgentConfig, channels: Collection[str]) -> Changes:
    """Return channels of an agent, and all that uses one of them.

    Args:
        agent: the agent.
        channels: the names of the channels.
    """
    names = frozenset(channels)
    sources = frozenset(s.name for s in agent.sources if names & _channels_of(s))
    sinks = frozenset(name for name, unit in sink_units(agent).items() if names & _channels_of_unit(unit))
    return Changes(sources, sinks, names)


def _differ(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def _channels_of(source: SourceConfig) -> set[str]:
    return {*source.channels, source.dead_letter}


def _channels_of_unit(unit: SinkUnit) -> set[str]:
    return {name for sink in unit.sinks for name in (sink.channel, sink.dead_letter)}
