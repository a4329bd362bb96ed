"""Splits a read into partitions, and reads a partition's events in a task.

A task is sent a `TaskSource` in place of Spark's reader: Spark starts new Python processes for tasks, and each would
import what plans a query before it reads its first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spillable_stream.counted import agreeing
from spillable_stream.engine.port import ChannelPort, ReadPlan
from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_types import ChannelOptions
from spillable_stream.spark.metadata import batch_with_metadata
from spillable_stream.spark.query_task import QueryTask
from spillable_stream.spark.schema import arrow_schema
from spillable_stream.spark.source.first_batch import PlannedBatch, note_batch
from spillable_stream.spark.source.read_options import ReadOptions
from spillable_stream.spark.source.task_reader import TaskReader
from spillable_stream.spark.spark_errors import short_traces
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet, count_of, events_in, listed

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = ["EventPartition", "TaskSource", "check_loss", "plan_partitions", "read_partition", "read_planned"]

_log = log_of(__name__)

OptionsT = TypeVar("OptionsT", bound=ReadOptions)

_LARGEST_BYTES = 128 << 20  # like Spark's own files (spark.sql.files.maxPartitionBytes)
_BATCH_BYTES = 256 << 10


class EventPartition(InputPartition):
    """All that a task needs to read some events, so that it opens files but not the channel.

    Args:
        plan: the locations of the events.
        group: the group that takes the events; None for a batch read.
        batch: the micro-batch that it begins; None for its other partitions, and for a batch read.
    """

    def __init__(self, plan: ReadPlan, group: str | None, batch: PlannedBatch | None = None) -> None:
        super().__init__(None)
        self.plan = plan
        self.group = group
        self.batch = batch


@short_traces
class TaskSource(Generic[OptionsT]):
    """What a task is sent of a source, whose reader is one too: how it reads its partition. Tasks call nothing else.

    Args:
        schema: the columns that Spark expects.
        options: the read's options.
    """

    def __init__(self, schema: StructType, options: OptionsT) -> None:
        self._schema: StructType = schema
        self._options: OptionsT = options

    def __reduce__(self) -> tuple[type[TaskSource[ReadOptions]], tuple[StructType, ReadOptions]]:
        """Pickle this and no more of a reader."""
        return TaskSource, (self._schema, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's events as Arrow batches, in order; a repeated read returns the same events."""
        return read_planned(partition, self._schema, self._options)


def plan_partitions(
    port: ChannelPort, state: ChannelState, ranges: list[Range], options: ReadOptions, batch: PlannedBatch | None = None
) -> list[EventPartition]:
    """Split events over as many tasks as may run at once, like Spark splits files.

    Partitions have the port's `least_task_bytes` to 128 MiB. All have about the same size, which is an estimate: the
    state assumes that all events of a block, or of a staged file, have the same size. Where the port says so, they end
    where blocks do, and have from a quarter of that to twice as much; less, where blocks are small. Not where those
    would be more tasks than run at once, each of which has its price.

    Args:
        port: the channel's port.
        state: the channel's state, in a snapshot.
        ranges: the events, in order.
        options: the read's options: the least number of partitions, the most events in one.
        batch: the micro-batch that has the events; None for a batch read.
    """
    count = count_of(ranges)
    if count == 0:
        return []
    pieces = [_piece(block, *r) for r in ranges for block in state.blocks.between(*r)]
    size_bytes = sum(size for _, size in pieces)
    each = min(_LARGEST_BYTES, max(port.least_task_bytes(), -(-size_bytes // port.tasks_at_once())))
    parts = min(max(options.min_partitions or 1, -(-size_bytes // each)), count)
    most = options.max_events_per_partition or count
    cuts = _cuts(pieces, count, parts)
    if port.tasks_end_with_blocks() and not options.min_partitions:
        between = _cuts_between(pieces, each)
        if len(between) <= port.tasks_at_once() + 1:
            cuts = between
    bounds = [i for a, b in pairwise(cuts) for i in _evenly(a, b, most)] + [count]
    plans = port.plan_read((_part(ranges, a, b) for a, b in pairwise(bounds)), options.cache)
    group = None if batch is None else batch.group
    return [EventPartition(plan, group, batch if i == 0 else None) for i, plan in enumerate(plans)]


def _piece(block: Block, first_id: int, last_id: int) -> tuple[int, int]:
    """Return the number of a block's events in a range, and their estimated size in bytes, at least 1."""
    count = min(last_id, block.last_id) - max(first_id, block.first_id) + 1
    return count, max(1, block.payload_bytes * count // block.count)


def _cuts(pieces: list[tuple[int, int]], count: int, parts: int) -> list[int]:
    """Divide events into parts of about equal size in bytes, none of them empty.

    Args:
        pieces: runs of events, in order: the number of events and the bytes of each.
        count: the number of all events.
        parts: the number of parts, at most ``count``.

    Returns:
        ``parts + 1`` indexes of events: where each part begins, and where the last one ends.
    """
    total = sum(size for _, size in pieces)
    cuts = [0]
    events = size_bytes = 0
    for of_piece, size in pieces:
        while (i := len(cuts)) < parts and (size_bytes + size) * parts > total * i:
            inside = (total * i - size_bytes * parts) * of_piece // (size * parts)
            cuts.append(min(max(events + inside, cuts[-1] + 1), count - parts + i))
        events += of_piece
        size_bytes += size
    return [*cuts, count]


def _cuts_between(pieces: list[tuple[int, int]], each: int) -> list[int]:
    """Divide events into parts that end where pieces do, but for pieces that are much too large.

    Args:
        pieces: runs of events, in order: the number of events and the bytes of each.
        each: how many bytes a part should have. Pieces from a quarter of that to twice as much, if 128 MiB allow it,
            are parts of their own; smaller ones share a part.

    Returns:
        The indexes of the events at which the parts begin, and the number of all events.
    """
    cuts = [0]
    events = size_bytes = 0
    was_large = False
    for of_piece, size in pieces:
        is_large = size >= each // 4
        if events > cuts[-1] and (is_large or was_large or size_bytes + size > each):
            cuts.append(events)
            size_bytes = 0
        parts = 1 if size <= min(2 * each, _LARGEST_BYTES) else min(-(-size // each), of_piece)
        cuts += [events + of_piece * i // parts for i in range(1, parts)]
        events += of_piece
        size_bytes += size
        was_large = is_large
    return [*cuts, events]


def _evenly(start: int, end: int, most: int) -> Iterator[int]:
    """Yield where parts with equal numbers of events, at most ``most``, begin within ``start`` to before ``end``."""
    parts = -(-(end - start) // most)
    return (start + (end - start) * i // parts for i in range(parts))


def _part(ranges: list[Range], start: int, end: int) -> Iterator[Range]:
    """Yield the events of ``ranges`` from the ``start``-th to before the ``end``-th."""
    before = 0
    for first, last in ranges:
        a, b = max(first, first + start - before), min(last, first + end - before - 1)
        if a <= b:
            yield a, b
        before += last - first + 1


def check_loss(
    channel: Channel, state: ChannelState, gone: Iterable[Range], options: ReadOptions, removed: Iterable[Range] = ()
) -> None:
    """Report events that a read should return but that are not there.

    Args:
        channel: the channel.
        state: its state.
        gone: the write-order IDs that are missing from the read since they were lost, with a memory tier or because of
            damage.
        options: the read's options. ``failOnDataLoss`` says whether to raise or to warn; ``onCorruption`` says whether
            events in quarantine count.
        removed: the write-order IDs that left by age or size before the read's group took them.

    Raises:
        DataLossError: events are or may be lost, or were removed, and ``failOnDataLoss`` is set.
    """
    missed = list(gone)
    if missed and options.passes_damage:
        missed = channel.port().not_quarantined(missed)
    lost, doubtful = _both(state.lost, missed), _both(state.doubtful, missed)
    found = [f"{events_in(lost, 'are')} lost"] if lost else []
    if doubtful:
        found.append(f"events with IDs among {listed(doubtful)} may have been in it, put just before the host stopped")
    messages = [f"{channel.path} lost its memory tier, or was damaged: {', and '.join(found)}"] if found else []
    if ranges := list(removed):
        count = count_of(ranges)
        messages.append(
            f"{events_in(ranges)} of {channel.path} {agreeing(count, 'were')} removed before the query read "
            f"{'it' if count == 1 else 'them'} "
            f"({_why_removed(state.options)})"
        )
    if not messages:
        return
    message = "; and ".join(messages)
    if options.fail_on_data_loss:
        raise DataLossError(f"{message}. Set failOnDataLoss to false to continue without them")
    _log.warning("%s; the read continues without them", message, extra=fields(channel.path))


def _why_removed(options: ChannelOptions) -> str:
    """Say which of the channel's options let events go that a group had yet to take."""
    if not options.keeps or options.retention_untaken != "drop":
        return (
            "no group held them for it: it was dropped, or nobody read as it for longer than autoGroupTtl, "
            f"{options.auto_group_ttl:g} s, or for 10 minutes before its first batch was planned"
        )
    limits = [("retentionMs", options.retention_ms), ("retentionBytes", options.retention_bytes)]
    given = ", ".join(f"{name} = {value}" for name, value in limits if value)
    return f"{given}, retentionUntaken = drop: a longer retention, or retentionUntaken = keep, would keep them for it"


def _both(gone: RangeSet, missed: list[Range]) -> list[Range]:
    return [r for first, last in missed for r in gone.within(first, last)]


def read_planned(partition: InputPartition, schema: StructType, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the events of what Spark hands a task: a partition, or Spark's stand-in for an empty list of them.

    The other arguments are those of `read_partition`, the schema as Spark's.
    """
    if not isinstance(partition, EventPartition):
        return iter(())
    return read_partition(partition, arrow_schema(schema), options)


def read_partition(partition: EventPartition, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield a partition's events as batches of exactly ``schema``, in order.

    Args:
        partition: the partition.
        schema: the columns that Spark expects.
        options: the read's options.

    Raises:
        NotAChannelError: this host does not have the channel's directories.
        OtherHostError: events are in the memory of another host.
        CheckpointMismatchError: it is of a query's first batch, and the query has begun before with other events.
        DataLossError: events have left the channel since the read was planned, and ``failOnDataLoss`` is set.
        CorruptionError: an event is damaged, and ``onCorruption`` is not ``quarantine``.
    """
    events = partition.plan.open()
    try:
        reader = TaskReader(events, partition.group, options)
        if partition.batch is not None:
            note_batch(events, partition.batch, QueryTask.here(), of_set=options.of_set)
        metadata = frozenset(options.metadata_types.keys() & schema.names)
        reads = (read for extent in partition.plan.extents for read in reader.read(extent))
        batches = (batch_with_metadata(read, schema, metadata, str(events.path)) for read in reads)
        yield from _resized(batches)
    except CorruptionError as e:
        e.advise(events.path)
        raise
    finally:
        events.close()


def _resized(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, because each batch has a cost in Spark, and slice large ones without a copy.

    Batches that fit into a core's cache are the cheapest, and the next one is read while Spark processes one.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        size_bytes = batch.nbytes
        if size_bytes < _BATCH_BYTES // 2:
            waiting.append(batch)
            waiting_bytes += size_bytes
            if waiting_bytes < _BATCH_BYTES:
                continue
        if waiting:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
        if size_bytes >= _BATCH_BYTES // 2:
            yield from _cut(batch, max(1, round(size_bytes / _BATCH_BYTES)))
    if waiting:
        yield _joined(waiting)


def _cut(batch: pa.RecordBatch, pieces: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in at most ``pieces`` slices of equal length."""
    rows = -(-batch.num_rows // pieces)
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
