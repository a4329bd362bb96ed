"""Builds what an agent runs from its configuration: channels, and the runners of sources and sinks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar, cast

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.several_channels import open_channels
from spillable_stream.channel.stored_options import stored_together
from spillable_stream.errors import OptionError
from spillable_stream.flow.changes import Changes, SinkUnit, sink_units
from spillable_stream.flow.configuration.builder import build
from spillable_stream.flow.configuration.channel_times import event_times
from spillable_stream.flow.configuration.model import AgentConfig, ComponentConfig, SinkConfig, SourceConfig, described
from spillable_stream.flow.interceptors.base import InterceptorChain
from spillable_stream.flow.late_channel import LateChannel, is_open
from spillable_stream.flow.open_channel import arguments_on_host, configured_channels
from spillable_stream.flow.optional_channels import optional_channels
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.source_runners import EventRunner, PolledRunner, source_runner
from spillable_stream.flow.sources.base import EventSource, PolledSource, SourceBase
from spillable_stream.flow.wired import AgentChannel, AgentChannels, Wired, agent_channel, open_late
from spillable_stream.objects.location import channel_path
from spillable_stream.shown_value import shown

__all__ = [
    "Begins",
    "assemble",
    "build_channels",
    "build_processor",
    "built_sink",
    "built_source",
    "opened_processor",
    "run_sinks",
    "run_source",
    "tell_nobody",
]

_T = TypeVar("_T")
_C = TypeVar("_C", bound=ComponentConfig)
_MODULE = "spillable_stream.flow"


Begins: TypeAlias = Callable[[str], object]
"""Is told which component is about to be built or opened, as "the channel c1"."""


def tell_nobody(component: str) -> None:
    """Do nothing, as where nobody asks what is being built."""


def assemble(
    agent: str,
    config: AgentConfig,
    system: Mapping[str, str],
    found: Changes,
    before: Wired,
    begins: Begins = tell_nobody,
) -> Wired:
    """Return what an agent runs by a configuration: what has not changed is what runs, and the rest is not started.

    A channel that has changed is open twice, until what runs has ended. One that is optional is opened when all starts.
    Where a channel of what runs is, no other one is opened, and none created: its disk may not be mounted.

    Args:
        agent: the agent's name.
        config: the configuration.
        system: the options of the command line (``-D``).
        found: what has changed since the configuration that runs.
        before: what runs.
        begins: is told each component before it is built or opened, which may hang, as "the channel c1".

    Raises:
        SpillableError: a channel that must have events can't be opened, or is not the one that runs, or a component
            can't be built; nothing of it is left open, and no channel has another option than before.
    """
    build_source, build_sink = _told(begins, "source", built_source), _told(begins, "sink", built_sink)
    sources = [(s, build_source(s)) for s in config.sources if s.name in found.sources]
    units = {name: unit for name, unit in sink_units(config).items() if name in found.sinks}
    sinks = {name: {c.name: build_sink(c) for c in unit.sinks if c.implementation} for name, unit in units.items()}
    kept, optional = _without(before.channels, found.channels), optional_channels(config)
    with ExitStack() as stack:
        with stored_together(lambda: begins("the options that are stored in the channels")):
            missing = [channel for channel in config.channels if channel.name not in kept]
            new = build_channels(agent, missing, system, optional, _known(before.channels), begins)
            for opened in new.values():
                stack.callback(opened.channel.close)
            channels = kept | new
            begins("what connects sources and sinks to the channels")
            wired = Wired(
                channels,
                _without(before.sources, found.sources)
                | {s.name: run_source(agent, s, source, channels) for s, source in sources},
                _without(before.sinks, found.sinks)
                | {name: run_sinks(agent, name, units[name], of, channels, system) for name, of in sinks.items() if of},
            )
        stack.pop_all()
    return wired


def _told(begins: Begins, kind: str, build_one: Callable[[_C], _T]) -> Callable[[_C], _T]:
    """Return what builds a component as another function does, and tells its name before."""

    def told(config: _C) -> _T:
        begins(f"the {kind} {config.name}")
        return build_one(config)

    return told


def _without(of: Mapping[str, _T], names: Collection[str]) -> dict[str, _T]:
    return {name: value for name, value in of.items() if name not in names}


class KnownChannel(NamedTuple):
    """A channel that is open.

    Args:
        uuid: its UUID.
        spool: the directory of its spool; "" for none.
    """

    uuid: str = ""
    spool: str = ""


def _known(channels: AgentChannels) -> dict[str, KnownChannel]:
    """Return what is known of open channels, by their paths."""
    there = [one for one in channels.values() if is_open(one.channel)]
    return {str(one.channel.path): KnownChannel(one.channel.uuid, one.spool) for one in there}


def build_channels(
    agent: str,
    configs: Sequence[ComponentConfig],
    system: Mapping[str, str],
    optional: Collection[str] = (),
    known: Mapping[str, KnownChannel] = {},
    begins: Begins = tell_nobody,
) -> dict[str, AgentChannel]:
    """Return channels of a configuration, by name: all are open but those that are optional.

    Args:
        agent: the agent's name.
        configs: the channels.
        system: the options of the command line (``-D``).
        optional: the names of those that are opened later, and may be away.
        known: the channels that must be there, by their paths, and their spools; any other one is created if it is
            missing.
        begins: as in `assemble`.

    Raises:
        SpillableError: one can't be opened; none is created then.
    """
    times = [event_times(config) for config in configs]
    waited = [config for config in configs if config.name not in optional]
    opened = dict(zip([c.name for c in waited], _open(agent, waited, system, known, begins), strict=True))
    late = {c.name: _late(c.name, partial(_opened, agent, c, system, known)) for c in configs if c.name in optional}
    spools = {c.name: _spool_of(agent, c, system) for c in configs}
    return {
        c.name: agent_channel((opened | late)[c.name], t)._replace(spool=spools[c.name])
        for c, t in zip(configs, times, strict=True)
    }


def _spool_of(agent: str, config: ComponentConfig, system: Mapping[str, str]) -> str:
    return str(arguments_on_host(agent, config, system).options.get("spool", ""))


def _open(
    agent: str,
    configs: Sequence[ComponentConfig],
    system: Mapping[str, str],
    known: Mapping[str, KnownChannel],
    begins: Begins = tell_nobody,
) -> list[Channel]:
    wanted = []
    for one in configured_channels(agent, configs, system):
        there = known.get(str(channel_path(one.path)), KnownChannel())
        has_spool = there.spool != "" and there.spool == one.options.get("spool")
        wanted.append(one._replace(uuid=there.uuid, has_spool=has_spool))
    names = {one.path: config.name for one, config in zip(wanted, configs, strict=True)}
    return open_channels(wanted, begins=lambda one: begins(f"the channel {names[one.path]}"))


def _late(name: str, open_channel: Callable[[], Channel]) -> Channel:
    """Return what stands for a channel; nothing that has one looks at its class."""
    return cast("Channel", LateChannel(name, open_channel))


def _opened(
    agent: str, config: ComponentConfig, system: Mapping[str, str], known: Mapping[str, KnownChannel]
) -> Channel:
    """Open a channel, unless it can't delay events as its configuration wants: puts there would fail for good."""
    (channel,) = _open(agent, [config], system, known)
    try:
        if event_times(config).may_delay:
            channel.put_transaction().require_delays()
    except BaseException:
        channel.close()
        raise
    return channel


def build_processor(agent: str, config: SourceConfig, channels: AgentChannels, *, numbered: bool) -> ChannelProcessor:
    """Return the interceptors, the selector and the channels of a source of a configuration.

    Args:
        agent: the agent's name.
        config: the source.
        channels: the open channels, at least those of the source.
        numbered: whether its batches have numbers.

    Raises:
        OptionError: a part can't be built.
    """
    return ChannelProcessor(
        {name: channels[name].channel for name in config.channels},
        InterceptorChain(
            [build(interceptor) for interceptor in config.interceptors],
            names=[interceptor.name for interceptor in config.interceptors],
        ),
        build(config.selector),
        producer=f"{agent}.{config.name}" if numbered else None,
        dead_letter=channels[config.dead_letter].channel if config.dead_letter else None,
        times={name: channels[name].times for name in config.channels},
        name=f"{agent}.{config.name}",
        division=_division(config),
    )


def _division(config: SourceConfig) -> str:
    """Return a short name of all that a file says of where a source's events go."""
    steps = [described(component) for component in (*config.interceptors, config.selector)]
    channels = sorted(config.channels) if config.selector.type == "replicating" else config.channels  # all get all
    return hashlib.blake2b(json.dumps([steps, channels, config.dead_letter]).encode(), digest_size=6).hexdigest()


def built_source(config: SourceConfig) -> SourceBase:
    """Return the source of a configuration, which is neither started nor wired.

    Raises:
        OptionError: it can't be built, or is not a source.
    """
    source = build(config)
    if not isinstance(source, (PolledSource, EventSource)):
        raise OptionError(f"{config.type} is not a source; derive it from PolledSource or EventSource of {_MODULE}")
    return source


def run_source(
    agent: str, config: SourceConfig, source: SourceBase, channels: AgentChannels
) -> PolledRunner | EventRunner:
    """Return the runner of a source of a configuration, which `built_source` returned.

    Raises:
        OptionError: a part of it can't be built.
    """
    processor = build_processor(agent, config, channels, numbered=getattr(source, "numbered", False))
    return source_runner(source, processor, f"{agent}.{config.name}")


@contextmanager
def opened_processor(config: AgentConfig, source: str, system: Mapping[str, str]) -> Iterator[ChannelProcessor]:
    """Open the channels of a source, which does not run, and yield what puts batches into them.

    Args:
        config: the agent.
        source: the source's name.
        system: the options of the command line (``-D``).

    Raises:
        OptionError: there is no such source, or a part of it can't be built.
        SpillableError: a channel can't be opened.
    """
    found = next((s for s in config.sources if s.name == source), None)
    if found is None:
        names = ", ".join(s.name for s in config.sources) or "none"
        raise OptionError(f"no source {shown(source)} of {config.name} can run; there are: {names}")
    wanted = {*found.channels, *([found.dead_letter] if found.dead_letter else [])}
    with ExitStack() as stack:
        with stored_together():
            described = [c for c in config.channels if c.name in wanted]
            channels = build_channels(config.name, described, system, optional_channels(config))
            for opened in channels.values():
                stack.callback(opened.channel.close)
            processor = build_processor(config.name, found, channels, numbered=False)
        open_late(channels, lambda: False)
        yield stack.enter_context(processor)


def built_sink(config: SinkConfig) -> Sink:
    """Return the sink of a configuration, which is neither started nor wired.

    Raises:
        OptionError: it can't be built, or is not a sink.
    """
    sink = build(config)
    if not isinstance(sink, Sink):
        raise OptionError(f"{config.type} is not a sink; derive it from Sink of {_MODULE}")
    return sink


def run_sinks(
    agent: str, name: str, unit: SinkUnit, sinks: Mapping[str, Sink], channels: AgentChannels, system: Mapping[str, str]
) -> SinkRunner:
    """Return the runner of a sink or of a group of sinks, which `built_sink` returned.

    Raises:
        OptionError: the group's processor can't be built.
    """
    wired: list[tuple[Sink, Channel, WrittenEvents]] = []
    for config in unit.sinks:
        if config.name not in sinks:
            continue
        sink = sinks[config.name]
        sink.name = f"{agent}.{config.name}"
        sink.channel_name, sink.system = config.channel, system
        sink.in_group = unit.group is not None
        sink.dead_letter = channels[config.dead_letter].channel if config.dead_letter else None
        wired.append((sink, *channels[config.channel].of_sinks))
    processor = None
    if unit.group is not None:
        processor = build(unit.group.processor)
        processor.configure(sinks)
    return SinkRunner(wired, processor, f"{agent}.{name}")
