"""Opens the optional channels of a flow, and asks what the agent's other channels have: for a second, and no longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql.types import StructType

from spillable_stream.error_text import text_of
from spillable_stream.flow.bulkhead import BulkheadCall, call_in_time
from spillable_stream.flow.configuration.channel_times import event_times
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.open_channel import configured_channels
from spillable_stream.spark.channel_pool import visit, visit_to_read
from spillable_stream.spark.sink.division import Answer, answer_of
from spillable_stream.spark.sink.optional_channel import OptionalChannel, bulkhead_of
from spillable_stream.spark.sink.sink_channel import plan_for
from spillable_stream.spark.sink.sink_options import SinkOptions

__all__ = ["batches_beside", "plan_optional"]


def plan_optional(
    flow: str, agent: str, configs: Sequence[ComponentConfig], options: SinkOptions, schema: StructType
) -> dict[str, OptionalChannel]:
    """Open optional channels, which are created if they are missing, and return by name how to write them.

    Args:
        flow: what messages call the flow.
        agent: the agent's name.
        configs: the channels.
        options: the write's options.
        schema: the schema of the rows.
    """
    calls = [BulkheadCall(bulkhead_of(flow, c.name), partial(_open, flow, agent, c, options, schema)) for c in configs]
    found = {}
    for config, opened in zip(configs, call_in_time(calls), strict=True):
        if isinstance(opened, Exception):
            why_not = f"it can't be opened: {text_of(opened)}"
            opened = OptionalChannel(flow, config.name, event_times(config), None, why_not)
        found[config.name] = opened
    return found


def _open(flow: str, agent: str, config: ComponentConfig, options: SinkOptions, schema: StructType) -> OptionalChannel:
    (wanted,) = configured_channels(agent, [config], {})
    # Through the pool: what took longer than a second to open is there for the next micro-batch.
    with visit(str(wanted.path), **wanted.options) as channel:
        plan = replace(plan_for(channel, str(channel.path), options, schema), keep_alive_seconds=0.0)
        return OptionalChannel(flow, config.name, event_times(config), plan)


def batches_beside(flow: str, places: Mapping[str, str]) -> dict[str, Answer]:
    """Return what other channels of the agent say of their batches, by name: those that are there and say so in time.

    Args:
        flow: what messages call the flow.
        places: where the channels are, by name.
    """
    calls = [BulkheadCall(bulkhead_of(flow, name), partial(_batches, place)) for name, place in places.items()]
    found = zip(places, call_in_time(calls), strict=True)
    return {name: answer for name, answer in found if not isinstance(answer, Exception)}


def _batches(place: str) -> Answer:
    with visit_to_read(place) as channel:
        return answer_of(channel)
