"""The streaming source: a micro-batch is a take transaction of a group.

``partitions(start, end)`` writes a TAKE, and ``commit(end)`` commits it. Spark calls ``commit`` one
batch late and never calls ``stop``, so nothing depends on either. The query's own offsets determine
what it reads; the group's position only determines what the channel may forget. The group's lock is
a kernel lock, so the next query can acquire it as soon as this one's worker has ended. Until a batch
is planned, the source holds the lock only while Spark asks for batches (`group_hold`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.port import ChannelPort
from spillable_stream.errors import CheckpointMismatchError, NotAChannelError
from spillable_stream.spark.batch_takes import BatchTakes
from spillable_stream.spark.checkpoint_check import check_batch, never_taken
from spillable_stream.spark.group_hold import GroupHold
from spillable_stream.spark.idle_polls import IdlePolls
from spillable_stream.spark.latest_offset import latest_event_id
from spillable_stream.spark.load_identity import LoadIdentity, load_name
from spillable_stream.spark.metadata import without_metadata
from spillable_stream.spark.offset import Offset, OffsetJson, starting_id
from spillable_stream.spark.partition import EventPartition, check_loss, plan_partitions, read_partition
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.offset_report import OffsetReport
from spillable_stream.spark.query_position import QueryPosition
from spillable_stream.spark.read_options import StreamOptions
from spillable_stream.spark.schema import arrow_schema, check_read_schema, creation_schema
from spillable_stream.spark.spark_errors import short_traces
from spillable_stream.state.ranges import shown

try:  # Spark 4.2 and later
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1 pass no limits
    if not TYPE_CHECKING:

        class ReadAllAvailable:
            """Stands for the class that this Spark does not have."""

        class SupportsTriggerAvailableNow:
            """Stands for the class that this Spark does not have."""

        ReadLimit = ReadMaxBytes = ReadMaxRows = ReadMinRows = Any

__all__ = ["START_FIRST", "SpillableStreamReader"]

START_FIRST = "Start what puts to it first; or let a stream make it, with the option createIfMissing"

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def _held(
    method: Callable[Concatenate[SpillableStreamReader, P], T],
) -> Callable[Concatenate[SpillableStreamReader, P], T]:
    """Hold the channel, and the group if it is owned, during one of Spark's calls."""

    @functools.wraps(method)
    def call(self: SpillableStreamReader, /, *args: P.args, **named: P.kwargs) -> T:
        with self._hold.call():
            return method(self, *args, **named)

    return call


@short_traces
class SpillableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream. It opens nothing before its first call.

    Its state is in two state machines: `QueryPosition` (where the query is) and `GroupHold` (what is open and owned).

    Args:
        path: the channel's directory.
        options: the source's options.
        schema: the schema that Spark expects.
        load: the name of the ``load()`` that it reads for (`load_identity`); by default a new one.
    """

    def __init__(self, path: str, options: StreamOptions, schema: StructType, load: str = "") -> None:
        self._path = path
        self._options = options
        self._schema = schema
        self._hold = GroupHold(self._open_channel, self._own_group)
        self._takes: BatchTakes
        self._load = LoadIdentity(path, options.group, load or load_name())
        self._query = QueryPosition()
        self._idle = IdlePolls()
        self._target: int | None = None  # the event at which a query with AvailableNow ends

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments, for executors."""
        return type(self), (self._path, self._options, self._schema)

    # ── what Spark's long-lived worker calls ────────────────────────────────────────────────

    @_held
    def initialOffset(self) -> OffsetJson:
        """Return the group's position. It is stored, so it is the same after every restart.

        A missing group is created. It has no owner until Spark asks where the first batch ends.
        """
        channel = self._open()
        position = channel.port().create_group(self._options.group, self._starting(channel))
        self._query.begin(position)
        return Offset(channel.uuid, position).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options ask for (Spark 4.2 and later)."""
        if self._options.max_events_per_trigger:
            return ReadMaxRows(self._options.max_events_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_events_per_trigger:
            return ReadMinRows(self._options.min_events_per_trigger)
        return ReadAllAvailable()

    @_held
    def prepareForTriggerAvailableNow(self) -> None:
        """Record where the channel ends now: the query stops there."""
        with self._port().snapshot() as state:
            self._target = state.last_id

    @_held
    def latestOffset(self, start: OffsetJson | None = None, limit: ReadLimit | None = None) -> OffsetJson:
        """Return where the next micro-batch ends. An idle query waits a moment for events.

        Args:
            start: where the micro-batch begins; None before Spark 4.2, where it begins at the last planned end.
            limit: Spark's limit. The options' limits apply unless Spark wants everything available.

        Raises:
            CheckpointMismatchError: the query can't continue from there (`checkpoint_check`).
        """
        position, uuid = self._consumer().position(), self._open().uuid
        given = None if start is None else self._parse(start)
        question = self._query.ask(given, position, uuid)
        begin = question.begin_id
        self._check_batch(begin, begin)
        if question.proven_id is not None:
            self._commit_proven(question.proven_id)
        end = self._takes.unfinished(begin)
        if end is None:
            end = self._end_or_wait(begin, everything=isinstance(limit, ReadAllAvailable))
        answer = self._query.answer(question, end, uuid)
        if end == begin:
            self._port().give_back_when_idle()
        return start if start is not None and answer == given else answer.to_json()

    @_held
    def reportLatestOffset(self) -> OffsetJson:
        """Return where the channel ends, and what a listener needs (`OffsetReport`), for the query's progress.

        Spark 4.2 and later call it, and neither store nor compare the result.
        """
        channel, group = self._open(), self._options.group
        with channel.port().snapshot() as state:
            lag = Lag.beyond(state, group, self._query.covered_id)
            return OffsetReport(
                channel.uuid, state.last_id, str(channel.path), group, self._hold.owner(), lag
            ).to_json()

    @_held
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Write the take of a range of events, and return its partitions.

        Raises:
            CheckpointMismatchError: the offsets are from another channel, or from an old checkpoint.
            DataLossError: events in the range were lost, and ``failOnDataLoss`` is set.
        """
        began, ended = self._parse(start), self._parse(end)
        begin, last = self._query.plan(began, ended), ended.event_id
        self._idle.are_over()
        if began == ended:  # before Spark 4.2 a resuming query first asks for its last end, done or not
            return []
        self._check_batch(begin, last)
        if begin >= last:
            return []
        consumer, port = self._consumer(), self._port()
        with port.snapshot() as state:
            after = self._query.missed_after(begin)
            missed = [(max(a, after + 1), b) for a, b in consumer.lost() if b > after]
            check_loss(self._open(), state, missed, self._options)
        self._hold.keep()
        ranges = self._takes.take(begin + 1, last)
        with port.snapshot() as state:
            return list(plan_partitions(port, state, ranges, self._options, self._options.group))

    @_held
    def commit(self, end: OffsetJson) -> None:
        """Commit the take of everything up to ``end``, which Spark has committed."""
        self._idle.are_over()
        self._consumer()
        self._takes.commit_up_to(self._parse(end).event_id)
        self._port().checkpoint_if_due()

    def stop(self) -> None:
        """Close the channel. Spark does not call this reliably."""
        self._hold.close()

    # ── what executors call ─────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's events as Arrow batches, in order; a repeated read returns the same events."""
        if not isinstance(partition, EventPartition):
            return iter(())
        return read_partition(partition, arrow_schema(self._schema), self._options)

    # ── where a micro-batch ends ────────────────────────────────────────────────────────────

    def _end_or_wait(self, begin: int, everything: bool) -> int:
        """Return where the next micro-batch ends (`latest_event_id`). An idle query waits a moment for one."""
        end = self._end(begin, everything)
        if end == begin and self._target is None and self._idle.may_wait():

            def found() -> bool:
                nonlocal end
                end = self._end(begin, everything)
                return end > begin

            self._idle.wait(self._port(), found)
        self._idle.record(nothing=end == begin)
        return end

    def _end(self, begin: int, everything: bool) -> int:
        consumer, options, target = self._consumer(), self._options, self._target
        with self._port().snapshot() as state:
            return latest_event_id(state, consumer.untaken, begin, options, target=target, everything=everything)

    def _check_batch(self, begin: int, end: int) -> None:
        """Refuse a checkpoint that does not fit, and report events that the query may never have read.

        Args:
            begin: the query has everything up to this ID.
            end: the last ID of the batch; ``begin`` if there is none yet.

        Raises:
            CheckpointMismatchError: the checkpoint does not fit; or ``failOnDataLoss`` is set and the group never took
                some of the events up to ``begin``.
        """
        consumer = self._consumer()
        with self._port().snapshot() as state:
            check_batch(state, consumer.group, begin, end, self._path)
            passed_over = never_taken(state, consumer.group, begin)
        if not passed_over:
            return
        message = (
            f"the Spark checkpoint has read {self._path} up to the event {begin}, but the group {consumer.group!r} "
            f"never took {shown(passed_over)}: the channel is an older copy, or the group was dropped, or a consumer "
            "rolled the query's takes back"
        )
        if self._options.fail_on_data_loss:
            raise CheckpointMismatchError(
                f"{message}. Use a new checkpointLocation to read them, or set failOnDataLoss to false if the query "
                "has already read them"
            )
        _log.warning("%s; the read continues without them", message)
        if self._takes.is_position(begin):
            consumer.commit(passed_over)

    # ── what Spark has committed ────────────────────────────────────────────────────────────────

    def _commit_proven(self, proven_id: int) -> None:
        """Commit the takes of the batches that are in Spark's commit log. Spark's request for the next one proves that.

        Waiting for `commit` would deadlock on a full channel. Spark calls it only when it plans the next batch, which
        needs a put, and a channel full of events that the query has read accepts none.

        Args:
            proven_id: everything up to this event is in Spark's commit log (`Question.proven_id`).
        """
        if not self._options.async_progress_tracking_enabled:
            self._takes.commit_up_to(proven_id)

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _open(self) -> Channel:
        return self._hold.channel()

    def _port(self) -> ChannelPort:
        return self._open().port()

    def _consumer(self) -> Consumer:
        return self._hold.consumer()

    def _open_channel(self) -> Channel:
        channel = self._open_or_create()
        try:
            check_read_schema(self._schema, channel.schema, metadata=self._options.metadata)
        except BaseException:
            channel.close(checkpoint=False, flush=False)
            raise
        return channel

    def _open_or_create(self) -> Channel:
        try:
            return Channel(self._path, create=False)
        except NotAChannelError as e:
            if not self._options.create_if_missing:
                raise NotAChannelError(f"{e}. {START_FIRST}") from None
            return Channel(self._path, schema=creation_schema(without_metadata(self._schema, self._options.metadata)))

    def _own_group(self, channel: Channel) -> Consumer:
        group, starting = self._options.group, self._starting(channel)

        def own(timeout_seconds: float) -> Consumer:
            return channel.consumer(group, timeout_seconds, starting, resume=True, note=self._load.note)

        consumer = self._load.own(own, self._options.owner_timeout)
        self._takes = BatchTakes(consumer)
        return consumer

    def _starting(self, channel: Channel) -> str:
        """Return where the group starts if it is new; for an existing group, a value that is always valid."""
        with channel.port().snapshot() as state:
            known = self._options.group in state.groups
        return "earliest" if known else starting_id(channel, self._options)

    def _parse(self, value: OffsetJson) -> Offset:
        return Offset.parse(value, self._open().uuid, self._path)
