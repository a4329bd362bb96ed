"""Sources and sinks that are Python objects, with their channels, as what an agent runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import check_fields
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sink_processors import SinkProcessor
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.source_runners import EventRunner, PolledRunner, source_runner
from spillable_stream.flow.sources.base import SourceBase
from spillable_stream.flow.wired import AgentChannel, AgentChannels, Wired, agent_channel
from spillable_stream.shown_value import shown

__all__ = ["SinkGroup", "Source", "wire"]


@dataclass(frozen=True, slots=True)
class Source:
    """A source, and where its events go.

    Args:
        source: the source.
        processor: the interceptors, the selector and the channels.
        name: its name; the class's by default.

    Raises:
        OptionError: an argument is of another type.
    """

    source: SourceBase
    processor: ChannelProcessor
    name: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class SinkGroup:
    """Sinks that are asked one at a time.

    Args:
        sinks: the sinks, by name.
        processor: what chooses among them, such as `Failover`.
        name: the group's name.

    Raises:
        OptionError: an argument is of another type.
    """

    sinks: Mapping[str, Sink]
    processor: SinkProcessor
    name: str = "group"

    def __post_init__(self) -> None:
        check_fields(self)


def wire(
    agent: str,
    sources: Sequence[Source],
    sinks: Sequence[Sink],
    sink_groups: Sequence[SinkGroup],
    channels: Mapping[str, Channel],
) -> Wired:
    """Return the runners of objects; each has a name of its own within the agent.

    Args:
        agent: the agent's name.
        sources: the sources.
        sinks: the sinks.
        sink_groups: groups of sinks.
        channels: channels by name, beside those of the sources.

    Raises:
        OptionError: a sink names a channel that is not there.
    """
    named = dict(channels)
    for source in sources:
        named |= source.processor.channels
    of_agent = {name: agent_channel(channel) for name, channel in named.items()}
    source_runners: dict[str, PolledRunner | EventRunner] = {}
    for source in sources:
        name = _unused(source.name or type(source.source).__name__.lower(), source_runners)
        source_runners[name] = source_runner(
            source.source, source.processor, source.processor.producer or f"{agent}.{name}"
        )
    sink_runners: dict[str, SinkRunner] = {}
    for sink in sinks:
        name = _unused(type(sink).__name__.lower() if sink.name == type(sink).__name__ else sink.name, sink_runners)
        sink.name = f"{agent}.{name}"
        sink_runners[name] = SinkRunner([(sink, *_channel_of(sink, of_agent).of_sinks)], None, sink.name)
    for group in sink_groups:
        for name, sink in group.sinks.items():
            sink.name, sink.in_group = f"{agent}.{name}", True
        group.processor.configure(group.sinks)
        in_group = [(sink, *_channel_of(sink, of_agent).of_sinks) for sink in group.sinks.values()]
        sink_runners[group.name] = SinkRunner(in_group, group.processor, f"{agent}.{group.name}")  # type: ignore[arg-type]
    return Wired(of_agent, source_runners, sink_runners)


def _channel_of(sink: Sink, channels: AgentChannels) -> AgentChannel:
    found = channels.get(sink.channel_name)
    if found is None:
        known = ", ".join(channels) or "none"
        raise OptionError(f"the sink {sink.name} takes from the channel {shown(sink.channel_name)}; there are {known}")
    return found


def _unused(name: str, taken: Mapping[str, object]) -> str:
    names = [name, *(f"{name}{n}" for n in range(2, len(taken) + 3))]
    return next(n for n in names if n not in taken)
