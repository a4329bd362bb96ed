"""What an agent counts, as Flume's JSON and as Prometheus reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from spillable_stream.errors import SpillableError
from spillable_stream.flow.agent import Agent
from spillable_stream.flow.processor import ChannelProcessor

__all__ = ["Component", "components", "flume_json", "prometheus_text"]

_COUNTERS = ("_count", "_fail", "_commits", "paused_seconds", "spilled_transactions", "disk_syncs", "disk_bytes")
"""How the names of what only grows end."""


class Component(NamedTuple):
    """One component's numbers.

    Args:
        kind: SOURCE, CHANNEL or SINK.
        name: its name within the agent.
        values: its numbers under Flume's names.
    """

    kind: str
    name: str
    values: Mapping[str, float]


def components(agent: Agent) -> Iterator[Component]:
    """Yield the numbers of each source, channel and sink."""
    for source in agent.sources.values():
        counters = source.source.counters
        values = {
            **counters.flume_counters(),
            **counters.pauses.flume_counters(),
            "BackoffSeconds": source.wait_seconds,
        }
        if isinstance(source.processor, ChannelProcessor):
            values["LeftOutCount"] = source.processor.left_out.events
        with suppress(Exception):  # its directory can't be listed, or it is of a class of the user's
            values |= source.source.lag()
        yield Component("SOURCE", _short(source.name), values)
    agent.failed_channels.look(agent.channels)
    for name, found in agent.channels.items():
        values = {"StartTime": found.start_time_ms, "StopTime": 0}
        with suppress(SpillableError):  # it is being closed, or a storage failure has closed it
            values |= found.channel.stats().flume_counters()
        yield Component("CHANNEL", name, values | agent.failed_channels.flume_counters(name))
    for runner in agent.sinks.values():
        for sink in runner.sinks:
            values = {**sink.counters.flume_counters(), "BackoffSeconds": runner.wait_seconds}
            with suppress(SpillableError, KeyError):  # its channel is being closed
                values["LagEvents"] = agent.channels[sink.channel_name].lag_events()
            yield Component("SINK", _short(sink.name), values)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def flume_json(agent: Agent) -> str:
    """Return all numbers as Flume's monitoring does: one object, every value a string."""
    found = {
        f"{c.kind}.{c.name}": {"Type": c.kind, **{k: _text(v) for k, v in c.values.items()}} for c in components(agent)
    }
    return json.dumps(found)


def _text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def prometheus_text(agent: Agent) -> str:
    """Return all numbers in Prometheus's text format: ``spillable_flow_source_event_received_total{…}``."""
    series: dict[str, list[str]] = {}
    for c in components(agent):
        for key, value in c.values.items():
            line = f'{{agent="{_label(agent.name)}",name="{_label(c.name)}"}} {_text(value)}'
            series.setdefault(f"spillable_flow_{c.kind.lower()}_{_series(key)}", []).append(line)
    troubles = agent.troubles()
    series["spillable_flow_ready"] = [f'{{agent="{_label(agent.name)}"}} {int(not troubles)}']
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in series}
    return "".join(
        f"# TYPE {name} {kinds[name]}\n" + "".join(f"{name}{line}\n" for line in lines)
        for name, lines in series.items()
    )


def _series(key: str) -> str:
    """Return the name of a series: ``EventReadFail`` is ``event_read_fail_total``."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()
    if words.endswith(_COUNTERS) and words != "open_connection_count":
        return words.removesuffix("_count") + "_total"
    return words


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
