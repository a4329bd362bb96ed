"""What a stream through a flow does in its optional channels: it waits for each step there for a second, and no longer.

A channel that is required for no event (`Selector.never_required`) has no part in the rest of the write. It is opened,
its rows are staged, and they are committed, each in a thread of its own (`spillable_stream.flow.bulkhead`). Where
one of these fails, or takes longer than a second, the channel misses the micro-batch as a whole::

    plan ── opened? ──▶ tasks ── all of its rows staged? ──▶ the others have the batch ──▶ commit

Rows are staged while the task works (`optional_stages`), so that second begins when the task has staged the others'.

The staged files of a micro-batch that it misses are removed, as soon as what is under way there has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from pyspark.sql.types import StructType

from spillable_stream.counted import counted
from spillable_stream.engine.port import SinkBatch
from spillable_stream.error_text import text_of
from spillable_stream.errors import OptionError
from spillable_stream.flow.bulkhead import Bulkhead, BulkheadCall, LateCallError, call_in_time
from spillable_stream.flow.configuration.channel_times import event_times
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.open_channel import configured_channels
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.channel_pool import visit, visit_to_read
from spillable_stream.spark.sink.division import Answer, answer_of
from spillable_stream.spark.sink.sink_channel import plan_for
from spillable_stream.spark.sink.sink_options import SinkOptions
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.task_guards import refuse_self_read
from spillable_stream.spark.sink.task_stage import Staged

__all__ = [
    "OptionalChannel",
    "OptionalPart",
    "batches_beside",
    "commit_optional",
    "discard_optional",
    "plan_optional",
    "refuse_reading_optional",
]

_log = log_of(__name__)

_bulkheads: dict[tuple[str, str], Bulkhead] = {}  # of this process: Spark makes each call with other objects


@dataclass(frozen=True, slots=True)
class OptionalChannel:
    """A channel that is required for no event. Picklable.

    Args:
        flow: what messages call the flow.
        name: the channel's name.
        times: for how long its events count, and when they are due.
        plan: how it is written; None if it can't be opened now.
        why_not: why it can't; "" if it can.
    """

    flow: str
    name: str
    times: EventTimes
    plan: SinkPlan | None
    why_not: str = ""

    def for_tasks(self) -> Self:
        """Return what the tasks of a stream need of it."""
        return self if self.plan is None else replace(self, plan=self.plan.for_tasks())

    @property
    def bulkhead(self) -> Bulkhead:
        """Its bulkhead in this process."""
        return _bulkhead(self.flow, self.name)


@dataclass(frozen=True, slots=True)
class OptionalPart:
    """A task's rows for an optional channel.

    Args:
        staged: what was staged; None if the channel misses them.
        rows: how many rows it has for the channel.
        why_not: why the channel misses them; "" if it does not.
    """

    staged: Staged | None
    rows: int
    why_not: str = ""


def _bulkhead(flow: str, name: str) -> Bulkhead:
    return _bulkheads.setdefault((flow, name), Bulkhead(name, counts_late=False))


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
    calls = [BulkheadCall(_bulkhead(flow, c.name), partial(_open, flow, agent, c, options, schema)) for c in configs]
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


# ── the driver ──────────────────────────────────────────────────────────────────────────────────


def batches_beside(flow: str, places: Mapping[str, str]) -> dict[str, Answer]:
    """Return what other channels of the agent say of their batches, by name: those that are there and say so in time.

    Args:
        flow: what messages call the flow.
        places: where the channels are, by name.
    """
    calls = [BulkheadCall(_bulkhead(flow, name), partial(_batches, place)) for name, place in places.items()]
    found = zip(places, call_in_time(calls), strict=True)
    return {name: answer for name, answer in found if not isinstance(answer, Exception)}


def _batches(place: str) -> Answer:
    with visit_to_read(place) as channel:
        return answer_of(channel)


def refuse_reading_optional(channels: Mapping[str, OptionalChannel], query: str | None) -> None:
    """Refuse a query that reads one of the channels, as far as these say so in time.

    Raises:
        OptionError: it does.
    """

    def refuse(plan: SinkPlan) -> None:
        with visit(plan.path, create=False) as channel:
            refuse_self_read(channel, query)

    if query is None:
        return
    calls = [BulkheadCall(c.bulkhead, partial(refuse, c.plan)) for c in channels.values() if c.plan is not None]
    for found in call_in_time(calls):
        if isinstance(found, OptionError):
            raise found


def commit_optional(
    channels: Mapping[str, OptionalChannel],
    parts: Mapping[str, Sequence[OptionalPart]],
    batch_id: int,
    sink: SinkBatch | None,
) -> None:
    """Commit a micro-batch to optional channels, as far as they take it, and log which of them do not get it.

    Args:
        channels: the channels, by name.
        parts: the tasks' rows for each channel that has some.
        batch_id: the batch.
        sink: by what the channels remember it.
    """
    calls: dict[str, BulkheadCall[None]] = {}
    missed: list[str] = []
    for name, of_tasks in parts.items():
        channel = channels[name]
        why_not = next((part.why_not for part in of_tasks if part.why_not), channel.why_not)
        if why_not or channel.plan is None:
            _log_missed(name, batch_id, of_tasks, why_not)
            missed.append(name)
            continue
        calls[name] = BulkheadCall(channel.bulkhead, partial(_commit, channel.plan, _staged(of_tasks), batch_id, sink))
    for name, found in zip(calls, call_in_time(list(calls.values())), strict=True):
        if found is not None:
            _log_missed(name, batch_id, parts[name], text_of(found), is_late=isinstance(found, LateCallError))
            missed.append(name)
    discard_optional(channels, {name: parts[name] for name in missed})


def _commit(plan: SinkPlan, staged: Sequence[Staged], batch_id: int, sink: SinkBatch | None) -> None:
    with plan.commit.opened(staged, batch_id) as commit:
        commit.publish(sink)


def _log_missed(name: str, batch_id: int, parts: Sequence[OptionalPart], why: str, *, is_late: bool = False) -> None:
    rows = sum(part.rows for part in parts)
    _log.warning(
        "the optional channel %s %s the batch %d (%s): %s",
        name,
        "may not get" if is_late else "does not get",
        batch_id,
        counted(rows, "event"),
        why,
        extra=fields(component=name, count=rows),
    )


def discard_optional(channels: Mapping[str, OptionalChannel], parts: Mapping[str, Sequence[OptionalPart]]) -> None:
    """Remove what tasks staged in optional channels, and these have not adopted, as soon as they answer.

    Args:
        channels: the channels, by name.
        parts: the tasks' rows for some of them.
    """
    calls = []
    for name, of_tasks in parts.items():
        plan, staged = channels[name].plan, _staged(of_tasks)
        if plan is not None and any(one.staged_names() for one in staged):
            calls.append(
                BulkheadCall(channels[name].bulkhead, partial(plan.commit.discard, staged), may_be_put_off=True)
            )
    call_in_time(calls)


def _staged(parts: Iterable[OptionalPart]) -> list[Staged]:
    return [part.staged for part in parts if part.staged is not None]


os.register_at_fork(after_in_child=_bulkheads.clear)  # the threads are the parent's
