"""Builds what an agent runs from its configuration: channels, and the runners of sources and sinks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError
from spillable_stream.flow.changes import SinkUnit
from spillable_stream.flow.configuration.builder import build
from spillable_stream.flow.configuration.channels import channel_arguments, data_directory
from spillable_stream.flow.configuration.model import ComponentConfig, SourceConfig
from spillable_stream.flow.open_channel import open_channel
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.runners import EventRunner, PolledRunner, SinkRunner, source_runner
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.written import WrittenEvents

__all__ = ["Place", "Places", "build_channel", "build_sinks", "build_source"]


class Place(NamedTuple):
    """An open channel, and what its sinks have written and not committed."""

    channel: Channel
    written: WrittenEvents


Places = Mapping[str, Place]
"""The open channels of an agent by name."""


def build_channel(agent: str, config: ComponentConfig, system: Mapping[str, str]) -> Place:
    """Open a channel of a configuration.

    Raises:
        SpillableError: it can't be opened.
    """
    arguments = channel_arguments(agent, config, data_directory(system, os.environ), os.path.expanduser("~"))
    return Place(open_channel(arguments), WrittenEvents())


def build_source(agent: str, config: SourceConfig, places: Places) -> PolledRunner | EventRunner:
    """Return the runner of a source of a configuration.

    Raises:
        OptionError: it can't be built.
    """
    name = f"{agent}.{config.name}"
    source = build(config)
    processor = ChannelProcessor(
        {channel: places[channel].channel for channel in config.channels},
        [build(interceptor) for interceptor in config.interceptors],
        build(config.selector),
        producer=name if getattr(source, "numbered", False) else None,
        dead_letter=places[config.dead_letter].channel if config.dead_letter else None,
    )
    return source_runner(source, processor, name)


def build_sinks(agent: str, name: str, unit: SinkUnit, places: Places, system: Mapping[str, str]) -> SinkRunner | None:
    """Return the runner of a sink or of a group of sinks; None where a Spark query is the sink.

    Raises:
        OptionError: a sink can't be built.
    """
    sinks: dict[str, tuple[Sink, Channel, WrittenEvents]] = {}
    for config in unit.sinks:
        if not config.implementation:
            continue
        sink: Sink = build(config)
        if not isinstance(sink, Sink):
            raise OptionError(f"{config.type} is not a sink; derive it from spillable_stream.flow.Sink")
        sink.name = f"{agent}.{config.name}"
        sink.channel_name, sink.system = config.channel, system
        sink.in_group = unit.group is not None
        sink.dead_letter = places[config.dead_letter].channel if config.dead_letter else None
        sinks[config.name] = (sink, *places[config.channel])
    if not sinks:
        return None
    processor = None
    if unit.group is not None:
        processor = build(unit.group.processor)
        processor.configure({sink_name: sink for sink_name, (sink, _, _) in sinks.items()})
    return SinkRunner(list(sinks.values()), processor, f"{agent}.{name}")
