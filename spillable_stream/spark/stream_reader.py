"""The streaming source: a micro-batch is a take transaction of a group.

``partitions(start, end)`` writes TAKE, ``commit(end)`` commits it. Spark calls ``commit`` one batch
late and ``stop`` never, so nothing here depends on either: the group's position only says what may
be forgotten, and a query's own offsets say what it reads. The group's lock is the kernel's, so that
the next query has it as soon as this one's worker is gone; before a batch is planned it is held only while Spark
asks for one (`spark.group_hold`).
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.groups import create_group
from spillable_stream.errors import CheckpointMismatchError, NotAChannelError
from spillable_stream.spark.batch_limits import batch_end
from spillable_stream.spark.batch_takes import BatchTakes
from spillable_stream.spark.checkpoint_check import check_batch, never_taken
from spillable_stream.spark.group_hold import GroupHold
from spillable_stream.spark.load import Load, load_name
from spillable_stream.spark.metadata import without_metadata
from spillable_stream.spark.offset import event_id, offset, starting_id
from spillable_stream.spark.partition import EventPartition, check_loss, plan_partitions, read_partition
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.schema import arrow_schema, check_read_schema, creation_schema
from spillable_stream.spark.short_trace import short_traces
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

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Stands for the class that this Spark does not have."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for the class that this Spark does not have."""

    ReadLimit = ReadMaxBytes = ReadMaxRows = ReadMinRows = Any

__all__ = ["START_FIRST", "SpillableStreamReader"]

START_FIRST = "Start what puts to it first; or let a stream make it, with the option createIfMissing"

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Spark asks an idle source a hundred times a second; a look at the head costs less than an answer. Both get rarer
# the longer nothing comes, but no source of a query with several shall keep the others waiting for long.
_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 0.2
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.02


def _held(
    method: Callable[Concatenate[SpillableStreamReader, P], T],
) -> Callable[Concatenate[SpillableStreamReader, P], T]:
    """Hold the channel, and the group if it is owned, during a call of Spark's."""

    @functools.wraps(method)
    def call(self: SpillableStreamReader, /, *args: P.args, **named: P.kwargs) -> T:
        with self._hold.call():
            return method(self, *args, **named)

    return call


@short_traces
class SpillableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream. Opens nothing before its first call.

    Args:
        path: the channel's directory.
        options: the source's options, by keyword name.
        schema: the schema that Spark expects.
        load: the name of the ``load()`` that it reads for (`spark.load`); by default it is the only one.
    """

    def __init__(self, path: str, options: dict[str, Any], schema: StructType, load: str = "") -> None:
        self._path = path
        self._options = options
        self._schema = schema
        self._hold = GroupHold(self._open_channel, self._own_group)
        self._takes: BatchTakes
        self._load = Load(path, options["group"], load or load_name())
        self._target: int | None = None
        self._seen = 0
        self._covered = 0  # where the batch ends that Spark was told of last
        self._initial: int | None = None
        self._is_new = False  # whether what Spark knows of a position is what `initialOffset` has just said
        self._last_end: dict[str, Any] | None = None
        self._done: int | None = None
        self._planned: int | None = None  # where the batch ended that was planned last
        self._idle_polls = 0  # how many times in a row there was nothing, and no batch of any source

    def __reduce__(self) -> tuple[Any, ...]:
        """Be sent to executors as what it was made of."""
        return type(self), (self._path, self._options, self._schema)

    # ── what Spark's long-lived worker calls ────────────────────────────────────────────────

    @_held
    def initialOffset(self) -> dict[str, Any]:
        """Return the group's position; it is stored, so it is the same after every restart.

        A new group is created; it is owned by nobody until Spark asks where the first batch ends.
        """
        channel, group = self._open(), self._options["group"]
        self._done = 0  # a new query: it misses all that the group lost
        self._is_new = True
        self._initial = create_group(channel.engine(), group, self._starting(channel))
        return offset(channel.uuid, self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options ask for (Spark 4.2 and later)."""
        if self._options["max_events_per_trigger"]:
            return ReadMaxRows(self._options["max_events_per_trigger"])
        if self._options["max_bytes_per_trigger"]:
            return ReadMaxBytes(self._options["max_bytes_per_trigger"])
        if self._options["min_events_per_trigger"]:
            return ReadMinRows(self._options["min_events_per_trigger"])
        return ReadAllAvailable()

    @_held
    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the channel ends now: the query stops there."""
        self._target = self._open().engine().follow().last_id

    @_held
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return where the next micro-batch ends; of a query that is idle, wait a moment for events.

        Args:
            start: where it begins; None before Spark 4.2, where the last end seen counts.
            limit: Spark's limit; the options' own limits count unless Spark wants all there is.

        Raises:
            CheckpointMismatchError: the query can't go on from there (`spark.checkpoint`).
        """
        position = self._consumer().position()
        begin = max(self._seen, position) if start is None else self._event_id(start)
        if self._is_new and self._initial != position and begin == (position if start is None else self._initial):
            # Spark knows of no batch, and a former owner's take was committed before this worker had the group.
            begin = self._initial = position
            start = offset(self._open().uuid, begin, begin)  # what Spark takes for the batch's start is before it
        self._is_new = False
        self._check_batch(begin, begin)
        self._commit_proven(None if start is None else begin)
        end = self._takes.under_way(begin)
        if end is None:
            end = self._end_or_wait(begin, everything=isinstance(limit, ReadAllAvailable))
        self._covered = end
        if end == begin:
            self._open().engine().checkpointing.give_back_when_idle()
        return self._end_offset(begin, end, start)

    @_held
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return where the channel ends, and what a listener needs to know; Spark's progress shows it.

        Spark 4.2 and later; it is neither stored nor compared. Its keys are sorted: ``avgOffsetsBehindLatest``,
        ``channel``, ``group``, ``lagEvents`` (the events that no batch has covered: what the group has yet to take
        beyond the batch that Spark plans now), ``maxOffsetsBehindLatest``, ``minOffsetsBehindLatest`` (Kafka's words;
        a channel is one partition, so all three are ``lagEvents``), ``oldestPutTimeMicros`` (when the first of these
        was put, since 1970; null if there are none), ``owner`` (`Consumer.owner`; null while it owns nothing),
        ``path`` and ``writeOrderId``.
        """
        channel, group = self._open(), self._options["group"]
        with channel.engine().looking() as state:
            lag = Lag.beyond(state, group, self._covered)
            return {
                "avgOffsetsBehindLatest": float(lag.events),
                "channel": channel.uuid,
                "group": group,
                "lagEvents": lag.events,
                "maxOffsetsBehindLatest": lag.events,
                "minOffsetsBehindLatest": lag.events,
                "oldestPutTimeMicros": lag.put_time_us,
                "owner": self._hold.owner(),
                "path": str(channel.path),
                "writeOrderId": state.last_id,
            }

    @_held
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Write that the group takes a range, and return it split for the tasks.

        Raises:
            CheckpointMismatchError: the offsets are of another channel, or of an old checkpoint.
            DataLossError: the events were lost.
        """
        begin, last = self._event_id(start), self._event_id(end)
        self._last_end, self._is_new = end, False
        self._planned = self._covered = last
        self._seen, self._idle_polls = max(self._seen, last), 0
        if start == end:  # before Spark 4.2 a query that goes on says so where it was, be that batch done or not
            return []
        begin = end.get("start", begin)
        self._check_batch(begin, last)
        first = begin + 1
        if first > last:
            return []
        consumer, engine = self._consumer(), self._open().engine()
        with engine.looking() as state:
            done = first - 1 if self._done is None else self._done  # by this query, whatever the group's position
            missed = [(max(a, done + 1), b) for a, b in consumer.lost() if b > done]
            check_loss(engine.layout, state, missed, self._options)
        self._hold.keep()
        ranges = self._takes.take(first, last)
        with engine.looking() as state:
            group, ends = self._options["group"], engine.ends()
            return list(plan_partitions(engine.layout, state, ranges, self._options, group, ends))

    @_held
    def commit(self, end: dict[str, Any]) -> None:
        """Commit the take of everything up to ``end``: Spark has it for good."""
        self._idle_polls = 0
        self._consumer()
        self._takes.commit_up_to(self._event_id(end))
        self._open().engine().checkpointing.make_if_due()

    def stop(self) -> None:
        """Close the channel, if Spark gets round to it."""
        self._hold.close()

    # ── what executors call ─────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's events as Arrow batches, in order; the same ones every time."""
        if not isinstance(partition, EventPartition):
            return iter(())
        return read_partition(partition, arrow_schema(self._schema), self._options)

    # ── where a micro-batch ends ────────────────────────────────────────────────────────────

    def _end_or_wait(self, begin: int, everything: bool) -> int:
        """Do what `_end` does; of a query that is idle, wait a moment for a micro-batch."""
        end = self._end(begin, everything)
        if end == begin and self._idle_polls and self._target is None:
            end = self._wait(begin, everything)
        self._idle_polls = self._idle_polls + 1 if end == begin else 0
        return end

    def _end(self, begin: int, everything: bool) -> int:
        """Return where the micro-batch after ``begin`` ends; ``begin`` if there is none yet.

        Args:
            begin: the ID up to which the query has everything.
            everything: whether the options' limits do not count.
        """
        consumer = self._consumer()
        with self._open().engine().looking() as state:
            last = state.last_id if self._target is None else min(state.last_id, self._target)
            if last <= begin or everything:
                return max(last, begin)
            limits = self._options
            if self._target is not None:
                limits = {**limits, "min_events_per_trigger": None}
            return batch_end(state, consumer.untaken(begin + 1, last), begin, last, limits)

    def _end_offset(self, begin: int, end: int, start: dict[str, Any] | None) -> dict[str, Any]:
        """Return the offset of a batch's end: its beginning, to the letter, where there is nothing new."""
        if start is None:  # before Spark 4.2, where `partitions` is called first after a restart
            start = self._last_end
            if start is None:
                self._initial = begin
        if end == begin and start is not None and self._event_id(start) == begin:
            return start
        return offset(self._open().uuid, end, begin if begin == self._initial and end > begin else None)

    def _wait(self, begin: int, everything: bool) -> int:
        """Wait a moment for a micro-batch and return where it ends; ``begin`` if none came."""
        lock = self._open().engine().lock
        wait = min(_SHORTEST_WAIT_SECONDS * self._idle_polls, _LONGEST_WAIT_SECONDS)
        pause = min(_SHORTEST_PAUSE_SECONDS * self._idle_polls, _LONGEST_PAUSE_SECONDS)
        deadline, end = time.monotonic() + wait, begin
        while end == begin and time.monotonic() < deadline:
            seen = lock.published()
            time.sleep(pause)
            if lock.published() != seen:
                end = self._end(begin, everything)
        return end

    def _check_batch(self, begin: int, end: int) -> None:
        """Refuse a checkpoint that does not fit, and report events that the query may never have had."""
        consumer, engine = self._consumer(), self._open().engine()
        with engine.looking() as state:
            check_batch(state, consumer.group, begin, end, self._path)
            passed_over = never_taken(state, consumer.group, begin)
        if not passed_over:
            return
        message = (
            f"the Spark checkpoint has read {self._path} up to the event {begin}, but the group {consumer.group!r} "
            f"never took {shown(passed_over)}: the channel is an older copy, or the group was dropped, or a consumer "
            "rolled the query's takes back"
        )
        if self._options["fail_on_data_loss"]:
            raise CheckpointMismatchError(
                f"{message}. Use a new checkpointLocation to read them, or set failOnDataLoss to false if the query "
                "has already read them"
            )
        _log.warning("%s; the read continues without them", message)
        if self._takes.is_position(begin):
            consumer.commit(passed_over)

    # ── what Spark has for good ─────────────────────────────────────────────────────────────────

    def _commit_proven(self, start: int | None) -> None:
        """Commit the take of the batches that are in Spark's commit log: its asking for the next one proves it.

        Spark calls `commit` when it plans the next batch, which needs a put; and a channel that is full of what a query
        has read takes none.

        Args:
            start: where Spark wants the next batch to begin; None before 4.2, where what was planned last is done.
        """
        proven = self._planned if start is None else start
        if proven is not None and not self._options["async_progress_tracking_enabled"]:
            self._takes.commit_up_to(proven)

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _open(self) -> Channel:
        return self._hold.channel()

    def _consumer(self) -> Consumer:
        return self._hold.consumer()

    def _open_channel(self) -> Channel:
        channel = self._open_or_create()
        try:
            check_read_schema(self._schema, channel.schema, metadata=self._options["metadata"])
        except BaseException:
            channel.close(checkpoint=False, flush=False)
            raise
        return channel

    def _open_or_create(self) -> Channel:
        try:
            return Channel(self._path, create=False)
        except NotAChannelError as e:
            if not self._options["create_if_missing"]:
                raise NotAChannelError(f"{e}. {START_FIRST}") from None
            return Channel(
                self._path, schema=creation_schema(without_metadata(self._schema, self._options["metadata"]))
            )

    def _own_group(self, channel: Channel) -> Consumer:
        group, starting = self._options["group"], self._starting(channel)

        def own(timeout_seconds: float) -> Consumer:
            return channel.consumer(group, timeout_seconds, starting, resume=True, note=self._load.note)

        consumer = self._load.own(own, self._options["owner_timeout"])
        self._takes = BatchTakes(consumer)
        return consumer

    def _starting(self, channel: Channel) -> str:
        """Return where the group starts if it is new; of one that exists, nothing that could be refused."""
        known = self._options["group"] in channel.engine().follow().groups
        return "earliest" if known else starting_id(channel, self._options)

    def _event_id(self, value: dict[str, Any]) -> int:
        return event_id(value, self._open().uuid, self._path)
