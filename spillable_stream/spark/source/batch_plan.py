"""The plan of a micro-batch: its take is written, and its events are divided among partitions."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import InputPartition

from spillable_stream.spark.source.first_batch import planned_batch
from spillable_stream.spark.source.group_reset import is_done
from spillable_stream.spark.source.offset import Offset
from spillable_stream.spark.source.partition import plan_partitions
from spillable_stream.spark.source.query_position import is_asked_anew
from spillable_stream.spark.source.stream_query import StreamQuery
from spillable_stream.state.ranges import RangeSet

__all__ = ["plan_batch", "reset_group"]


def plan_batch(query: StreamQuery, began: Offset, ended: Offset) -> list[InputPartition]:
    """Write the take of a micro-batch, and return its partitions.

    Args:
        query: the query.
        began: where Spark says that the batch begins.
        ended: where it ends.

    Raises:
        CheckpointMismatchError: the offsets are from an old checkpoint.
        DataLossError: events of the batch were lost or removed, and ``failOnDataLoss`` is set.
    """
    if query.group.is_made_up(began, ended) or is_asked_anew(began, ended):  # how it was, the end knows alone
        began = ended if ended.start_id is None else replace(ended, event_id=ended.start_id)
    begin, last = query.position.plan(began, ended), ended.event_id
    query.check_history(ended, None if began == ended and ended.start_id is None else begin)
    query.hear(ended, last if began == ended else begin)
    query.start.reset = None
    if ended.reset is not None and query.options.reset_group:
        begin = reset_group(query, ended.reset, begin)
    if began == ended:  # before Spark 4.2 a resuming query first asks for its last end, done or not
        return _plan_nothing(query, last)
    query.check_batch(begin, last)
    if begin >= last:
        return _plan_nothing(query, begin)
    return _plan_events(query, begin, ended)


def _plan_events(query: StreamQuery, begin: int, ended: Offset) -> list[InputPartition]:
    """Plan a batch with events.

    Args:
        query: the query.
        begin: the event after which the batch begins.
        ended: where it ends.
    """
    query.consumer()
    port, group = query.port(), query.group.name
    with port.snapshot() as state:
        told = query.tell_missed(state, begin, RangeSet())
    query.lease.keep()
    taken = query.finished.takes.take(begin + 1, ended.event_id)
    query.finished.planned()
    with port.snapshot() as state:  # events may have left before the take was in the log, which holds them back
        missed = query.tell_missed(state, begin, told)  # a take that was written before may have them
        absent = missed.union(state.passing(group))
        ranges = [r for each in taken for r in absent.gaps(*each)]
        batch = planned_batch(state, query.group, taken, ended, is_again=not query.position.has_answered(ended))
        return list(plan_partitions(port, state, ranges, query.options, batch))


def _plan_nothing(query: StreamQuery, begin: int) -> list[InputPartition]:
    """Plan a batch without events: Spark's checkpoint has it, so a group of the query's own is there to stay.

    A group that is gone is not created again here: before Spark 4.2 this may be the end of a batch that comes next.
    The next batch begins behind what is gone now, so that is reported here.

    Args:
        query: the query.
        begin: the event after which the batch begins.

    Raises:
        DataLossError: events before the next batch are gone, and ``failOnDataLoss`` is set.
    """
    port, group = query.port(), query.group
    with port.snapshot() as state:
        if group.name not in state.groups:
            return []
    if group.is_automatic:
        query.consumer()
        port.record_plan(group.name)
    with port.snapshot() as state:
        if group.name in state.groups:
            query.tell_missed(state, begin, RangeSet())
    return []


def reset_group(query: StreamQuery, reset: str, begin: int) -> int:
    """Move the group to where the query's first batch begins, unless that was done before.

    Events may have left the channel since Spark wrote that down. The batch then begins behind them.

    Args:
        query: the query.
        reset: the reset's name.
        begin: the batch has the events after this one.

    Returns:
        The event after which the batch begins.

    Raises:
        CheckpointMismatchError: another query has reset the group since.
        DataLossError: the first events have left the channel (`QueryStart.miss`).
    """
    consumer = query.consumer()
    with query.port().snapshot() as state:
        begins = max(begin, state.beginning() - 1)
        if is_done(reset, state.groups[consumer.group].reset, consumer.group, query.path):
            return begins
    if begin < begins:
        query.start.miss(begin + 1, begins, query.path)
    query.lease.keep()
    consumer.seek(begins, reset)
    query.finished.own(consumer)
    return begins
