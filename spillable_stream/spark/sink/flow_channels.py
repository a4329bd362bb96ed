"""Reads the configuration of a flow for a stream, and opens the channels that its source writes to."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from pyspark.sql.types import StructType

from spillable_stream.channel.several_channels import WantedChannel, enter_together
from spillable_stream.engine.port import one_look
from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.builder import build
from spillable_stream.flow.configuration.channel_times import event_times
from spillable_stream.flow.configuration.model import AgentConfig, SourceConfig
from spillable_stream.flow.loading import load
from spillable_stream.flow.open_channel import configured_channels
from spillable_stream.flow.selectors import LoadBalancing
from spillable_stream.format.batch import EVENT_SCHEMA, check_columns
from spillable_stream.shown_value import command
from spillable_stream.spark.schema import arrow_schema
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.sink.flow_division import flow_division, place_of
from spillable_stream.spark.sink.flow_plan import FlowPlan
from spillable_stream.spark.sink.optional_channels import plan_optional
from spillable_stream.spark.sink.sink_channel import plan_for
from spillable_stream.spark.sink.sink_options import SinkOptions

__all__ = ["plan_flow"]


@one_look()
def plan_flow(options: SinkOptions, schema: StructType) -> FlowPlan:
    """Read the configuration, create its channels that are missing, and return how to write through the source.

    A channel that is required for no event, and can't be opened in time, misses what comes until it can.

    Args:
        options: the write's options, with `SinkOptions.flow`.
        schema: the schema of the rows.

    Raises:
        OptionError: the configuration has no such source that runs; or its selector spreads rows in a way that a
            repetition of a batch would not follow.
        SchemaError: the rows are not events: columns headers and body.
        OSError: the file can't be read.
    """
    assert options.flow is not None
    path, agent_name, source_name = options.flow
    check_columns(arrow_schema(schema), EVENT_SCHEMA)
    agent, source = _source(path, agent_name, source_name)
    selector = build(source.selector)
    if isinstance(selector, LoadBalancing):
        raise OptionError(
            f"{agent_name}.{source_name} has a load_balancing selector, which a stream can't use: when Spark repeats a "
            "batch, its rows may come in another order and go to other channels. Use another one, or shards"
        )
    selector.bind(source.channels)
    every = dict.fromkeys([*source.channels, *([source.dead_letter] if source.dead_letter else [])])
    aside = selector.never_required() - {source.dead_letter}
    names = tuple([name for name in every if name not in aside])
    described = {channel.name: channel for channel in agent.channels}

    wanted = configured_channels(agent_name, [described[name] for name in names], {})
    with ExitStack() as stack:
        channels = enter_together(stack, wanted, WantedChannel.open, WantedChannel.check, side_by_side)
        plans = side_by_side([partial(plan_for, channel, str(channel.path), options, schema) for channel in channels])
    base = f"{agent_name}.{source_name} of {path}"
    may_have = [described[name] for name in every if name in aside]
    optional = plan_optional(base, agent_name, may_have, options, schema)
    return FlowPlan(
        base=base,
        source=source,
        names=names,
        channels=tuple(plans),
        times=tuple([event_times(described[name]) for name in names]),
        optional=optional,
        schema=schema,
        division=flow_division(agent_name, source, [described[name] for name in every]),
        places={name: place_of(agent_name, config) for name, config in described.items()},
    )


def _source(path: str, agent_name: str, source_name: str) -> tuple[AgentConfig, SourceConfig]:
    loaded = load(path, name=agent_name)
    agent = loaded.agents.get(agent_name)
    source = next((s for s in agent.sources if s.name == source_name), None) if agent is not None else None
    if agent is None or source is None:
        why = "; ".join(str(finding.text) for finding in loaded.errors[:3]) or "it describes none"
        raise OptionError(
            f"{path} has no source {agent_name}.{source_name} that runs: {why}. "
            f"`{command('validate', '-f', path)}` says more"
        )
    return agent, source
