"""Commits a stream's rows to the optional channels of its flow, as far as these take them in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from spillable_stream.counted import counted
from spillable_stream.engine.port import SinkBatch
from spillable_stream.error_text import text_of
from spillable_stream.errors import OptionError
from spillable_stream.flow.bulkhead import BulkheadCall, LateCallError, call_in_time
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.sink.optional_channel import OptionalChannel, OptionalPart
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.task_guards import refuse_self_read
from spillable_stream.spark.sink.task_stage import Staged

__all__ = ["OptionalCommit"]

_log = log_of(__name__)


class OptionalCommit:
    """The commit to the optional channels of a flow, of one micro-batch after the other.

    Args:
        channels: the channels, by name.
    """

    def __init__(self, channels: Mapping[str, OptionalChannel]) -> None:
        self._channels = channels

    def refuse_reading(self, query: str | None) -> None:
        """Refuse a query that reads one of the channels, as far as these say so in time.

        Args:
            query: the query's ID; None where no task has any rows.

        Raises:
            OptionError: it does.
        """

        def refuse(plan: SinkPlan) -> None:
            with visit(plan.path, create=False) as channel:
                refuse_self_read(channel, query)

        if query is None:
            return
        channels = self._channels.values()
        calls = [BulkheadCall(c.bulkhead, partial(refuse, c.plan)) for c in channels if c.plan is not None]
        for found in call_in_time(calls):
            if isinstance(found, OptionError):
                raise found

    def publish(self, parts: Mapping[str, Sequence[OptionalPart]], batch_id: int, sink: SinkBatch | None) -> None:
        """Commit a micro-batch, as far as the channels take it, and log which of them do not get it.

        Args:
            parts: the tasks' rows for each channel that has some.
            batch_id: the batch.
            sink: by what the channels remember it.
        """
        calls: dict[str, BulkheadCall[None]] = {}
        missed: list[str] = []
        for name, of_tasks in parts.items():
            channel = self._channels[name]
            why_not = next((part.why_not for part in of_tasks if part.why_not), channel.why_not)
            if why_not or channel.plan is None:
                _log_missed(name, batch_id, of_tasks, why_not)
                missed.append(name)
                continue
            commit = partial(_commit, channel.plan, _staged(of_tasks), batch_id, sink)
            calls[name] = BulkheadCall(channel.bulkhead, commit)
        for name, found in zip(calls, call_in_time(list(calls.values())), strict=True):
            if found is not None:
                _log_missed(name, batch_id, parts[name], text_of(found), is_late=isinstance(found, LateCallError))
                missed.append(name)
        self.discard({name: parts[name] for name in missed})

    def discard(self, parts: Mapping[str, Sequence[OptionalPart]]) -> None:
        """Remove what tasks staged in the channels, and these have not adopted, as soon as they answer.

        Args:
            parts: the tasks' rows for some of them.
        """
        calls = []
        for name, of_tasks in parts.items():
            channel, staged = self._channels[name], _staged(of_tasks)
            if channel.plan is not None and any(one.staged_names() for one in staged):
                discard = partial(channel.plan.commit.discard, staged)
                calls.append(BulkheadCall(channel.bulkhead, discard, may_be_put_off=True))
        call_in_time(calls)


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


def _staged(parts: Iterable[OptionalPart]) -> list[Staged]:
    return [part.staged for part in parts if part.staged is not None]
