"""The streaming source: a micro-batch is a take transaction of a group.

``partitions(start, end)`` writes a TAKE, and ``commit(end)`` commits it. Spark calls ``commit`` one
batch late and never calls ``stop``, so nothing depends on either. The query's own offsets determine
what it reads; the group's position only determines what the channel may forget. The group's lock is
a kernel lock, so the next query can acquire it as soon as this one's worker has ended. Until a batch
is planned, the source holds a named group's lock only while Spark asks for batches (`group_lease`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.port import ChannelPort, QueryNote, one_look
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.offset_report import OffsetReport
from spillable_stream.spark.source.checkpoint_check import (
    check_batch,
    check_history,
    check_put_time,
    never_taken,
    pass_over,
)
from spillable_stream.spark.source.finished_batches import FinishedBatches
from spillable_stream.spark.source.first_batch import planned_batch
from spillable_stream.spark.source.group_lease import GroupLease
from spillable_stream.spark.source.group_reset import is_done
from spillable_stream.spark.source.idle_polls import IdlePolls
from spillable_stream.spark.source.latest_offset import Backlog, latest_event_id, waiting
from spillable_stream.spark.source.load_identity import LoadIdentity, load_name
from spillable_stream.spark.source.missed_events import tell_missed
from spillable_stream.spark.source.offset import Offset, OffsetJson
from spillable_stream.spark.source.partition import plan_partitions, read_planned
from spillable_stream.spark.source.query_group import QueryGroup
from spillable_stream.spark.source.query_position import Asked, Phase, QueryPosition, is_asked_anew
from spillable_stream.spark.source.query_start import QueryStart
from spillable_stream.spark.source.read_limits import (
    ReadLimit,
    SupportsTriggerAvailableNow,
    default_limit,
    is_everything,
)
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.source_channel import SourceChannel
from spillable_stream.spark.spark_errors import short_traces
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["SpillableStreamReader"]

P = ParamSpec("P")
T = TypeVar("T")


def _held(
    method: Callable[Concatenate[SpillableStreamReader, P], T],
) -> Callable[Concatenate[SpillableStreamReader, P], T]:
    """Hold the channel, and the group if it is owned, during one of Spark's calls, which looks at the log once."""

    @functools.wraps(method)
    def call(self: SpillableStreamReader, /, *args: P.args, **named: P.kwargs) -> T:
        with one_look(), self._lease.call():
            return method(self, *args, **named)

    return call


@short_traces
class SpillableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream. It opens nothing before its first call.

    Its state is in three state machines: `QueryPosition` (where the query is), `QueryGroup` (as which group it reads)
    and `GroupLease` (what is open and owned).

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
        self._group = QueryGroup(options.group)
        self._start = QueryStart(options, self._group)
        self._load = LoadIdentity(path, load or load_name())
        self._source = SourceChannel(path, options, schema, self._group, self._start, self._load)
        self._lease = GroupLease(self._source.open, self._own_group, lambda: self._finished.commit_before_close())
        self._finished = FinishedBatches(self._lease, options, path)
        self._query = QueryPosition()
        self._idle = IdlePolls()
        self._target: int | None = None  # the event at which a query with AvailableNow ends

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments, for executors."""
        return type(self), (self._path, self._options, self._schema)

    # ── what Spark's long-lived worker calls ────────────────────────────────────────────────

    @_held
    def initialOffset(self) -> OffsetJson:
        """Return where the query begins (`QueryStart`).

        A group that the options name is created if it is missing. It has no owner until Spark asks where the first
        batch ends.
        """
        channel = self._open()
        position = self._start.position(channel)
        self._query.begin(position)
        return self._to_json(Offset(channel.uuid, position, group=self._group.label, reset=self._start.reset))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options ask for (Spark 4.2 and later)."""
        return default_limit(self._options)

    @_held
    def port(self) -> ChannelPort:
        """Return the channel's port; opens the channel."""
        return self._port()

    @_held
    def query_notes(self) -> list[QueryNote]:
        """Return what is noted of queries that read as this group, or as groups that they created for themselves."""
        port = self._port()
        with port.snapshot() as state:
            groups = {self._group.name, *(name for name, group in state.groups.items() if group.has_planned)}
        return [note for name in sorted(groups) if (note := port.query_note(name)) is not None]

    @_held
    def prepareForTriggerAvailableNow(self) -> None:
        """Record where the channel ends now: the query stops there."""
        self._port().deliver()
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
        asked = self.ask(start)
        return self._answered(asked, self._end_or_wait(asked, None if is_everything(limit) else self._options))

    @_held
    def ask(self, start: OffsetJson | None) -> Asked:
        """Begin to answer `latestOffset`, and tell what decides it but for the limits.

        Args:
            start: where the micro-batch begins, like that of `latestOffset`.

        Raises:
            CheckpointMismatchError: the query can't continue from there (`checkpoint_check`).
        """
        self._port().deliver()  # also of an idle query: nobody else may come
        given = None if start is None else self._parse(start)
        if given is not None:
            self._check_history(given, given.event_id)
            self._hear(given, given.event_id)
            self._source.check_new_group(self._open(), given.event_id)
        elif self._query.phase is Phase.UNHEARD:  # before Spark 4.2: the query is new
            self._start.position(self._open())
        consumer, uuid = self._consumer(), self._open().uuid
        if self._start.reset is not None:  # the group is moved with the first batch, so its position says nothing yet
            return Asked(start, given, self._query.ask(given, self._start.position(self._open()), uuid), None)
        question = self._query.ask(given, consumer.position(), uuid)
        self._check_batch(question.begin_id, question.begin_id)
        if question.proven_id is not None:
            self._finished.commit_proven(question.proven_id)
        return Asked(start, given, question, self._finished.takes.unfinished(question.begin_id))

    @_held
    def waiting(self, asked: Asked) -> Backlog:
        """Return what waits for the micro-batch that Spark asks for."""
        begin = asked.question.begin_id
        with self._port().snapshot() as state:
            return waiting(state, self._untaken(state, begin), begin, self._options, self._target)

    @_held
    def answer(self, asked: Asked, limits: StreamOptions | None) -> OffsetJson:
        """Return where the micro-batch ends, at once.

        Args:
            asked: what `ask` returned.
            limits: the options whose limits apply; None for everything there is.
        """
        return self._answered(asked, self._end(asked, limits))

    @_held
    def decline(self, asked: Asked) -> OffsetJson:
        """Return where the micro-batch ends if nothing more may be in it."""
        return self._answered(asked, asked.question.begin_id if asked.unfinished_id is None else asked.unfinished_id)

    @_held
    def reportLatestOffset(self) -> OffsetJson:
        """Return where the channel ends, and what a listener needs (`OffsetReport`), for the query's progress.

        Spark 4.2 and later call it, and neither store nor compare the result.
        """
        channel, group = self._open(), self._group.name
        with channel.port().snapshot() as state:
            lag = Lag.beyond(state, group if self._start.reset is None else None, self._query.covered_id)
            marks = state.restore_before(state.last_id), state.recovery_before(state.last_id)
            path, owner = str(channel.path), self._lease.owner()
            return OffsetReport(channel.uuid, state.last_id, path, group, owner, lag, *marks).to_json()

    @_held
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Write the take of a range of events, and return its partitions.

        Raises:
            CheckpointMismatchError: the offsets are from another channel, or from an old checkpoint.
            DataLossError: events in the range were lost or removed, and ``failOnDataLoss`` is set.
        """
        began, ended = self._parse(start), self._parse(end)
        if self._group.is_made_up(began, ended) or is_asked_anew(began, ended):  # how it was, the end knows alone
            began = ended if ended.start_id is None else replace(ended, event_id=ended.start_id)
        begin, last = self._query.plan(began, ended), ended.event_id
        self._check_history(ended, None if began == ended and ended.start_id is None else begin)
        self._hear(ended, last if began == ended else begin)
        self._idle.are_over()
        self._start.reset = None
        if ended.reset is not None and self._options.reset_group:
            begin = self._reset_group(ended.reset, begin)
        if began == ended:  # before Spark 4.2 a resuming query first asks for its last end, done or not
            return self._nothing(last)
        self._check_batch(begin, last)
        if begin >= last:
            return self._nothing(begin)
        self._consumer()
        port, group = self._port(), self._group.name
        with port.snapshot() as state:
            told = self._tell_missed(state, begin, RangeSet())
        self._lease.keep()
        taken = self._finished.takes.take(begin + 1, last)
        self._finished.is_planned()
        with port.snapshot() as state:  # events may have left before the take was in the log, which holds them back
            missed = self._tell_missed(state, begin, told)  # a take that was written before may have them
            absent = missed.union(state.passing(group))
            ranges = [r for each in taken for r in absent.gaps(*each)]
            batch = planned_batch(state, self._group, taken, ended, is_again=not self._query.has_answered(ended))
            return list(plan_partitions(port, state, ranges, self._options, batch))

    @_held
    def commit(self, end: OffsetJson) -> None:
        """Commit the take of everything up to ``end``, which Spark has committed."""
        self._idle.are_over()
        done = self._parse(end)
        self._check_history(done, done.event_id)
        self._hear(done, done.event_id)
        self._consumer()
        self._finished.commit(done.event_id)
        self._port().checkpoint_if_due()

    def give_group_up(self) -> None:
        """Let the query's next source have the group, before `stop` (`GroupLease.give_up`)."""
        self._lease.give_up()

    def stop(self) -> None:
        """Close the channel. Spark does not call this reliably."""
        self._lease.close()

    # ── what executors call ─────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's events as Arrow batches, in order; a repeated read returns the same events."""
        return read_planned(partition, self._schema, self._options)

    # ── where a micro-batch ends ────────────────────────────────────────────────────────────

    def _end_or_wait(self, asked: Asked, limits: StreamOptions | None) -> int:
        """Return where the next micro-batch ends (`latest_event_id`). An idle query waits a moment for one."""
        begin, end = asked.question.begin_id, self._end(asked, limits)
        if asked.unfinished_id is not None:
            return end
        if end == begin and self._target is None and self._idle.may_wait():

            def found() -> bool:
                nonlocal end
                end = self._end(asked, limits)
                return end > begin

            self._idle.wait(self._port(), found)
        self._idle.record(nothing=end == begin)
        return end

    def _end(self, asked: Asked, limits: StreamOptions | None) -> int:
        if asked.unfinished_id is not None:
            return asked.unfinished_id
        begin, options, target = asked.question.begin_id, limits or self._options, self._target
        with self._port().snapshot() as state:
            untaken = self._untaken(state, begin)
            return latest_event_id(state, untaken, begin, options, target=target, everything=limits is None)

    def _untaken(self, state: ChannelState, begin: int) -> Callable[[int, int], Iterable[Range]]:
        """Return what tells which events the query has yet to read, of those after its batch's beginning."""
        if self._start.reset is not None:
            return state.gone().union(state.left_after(begin)).gaps
        return self._consumer().untaken

    def _answered(self, asked: Asked, end: int) -> OffsetJson:
        """Return the answer to `latestOffset`: to the letter what was given, where there is nothing new."""
        answer = self._query.answer(asked.question, end, self._open().uuid)
        if end == asked.question.begin_id:
            self._port().give_back_when_idle()
            if self._target is not None:
                self._finished.commit_due()  # nothing comes any more
        if asked.start is not None and answer == asked.given:
            return asked.start
        made_at = None if answer.start_id is None else answer.made_at or self._group.made_at
        reset = answer.reset or self._start.reset
        put_us = answer.put_us or (self._port().put_time_us(end) if end > asked.question.begin_id else 0)
        return self._to_json(replace(answer, group=self._group.label, reset=reset, made_at=made_at, put_us=put_us))

    def _nothing(self, begin: int) -> list[InputPartition]:
        """Plan a batch without events: Spark's checkpoint has it, so a group of the query's own is there to stay.

        A group that is gone is not created again here: before Spark 4.2 this may be the end of a batch that comes next.
        The next batch begins behind what is gone now, so that is reported here.

        Args:
            begin: the event after which the batch begins.

        Raises:
            DataLossError: events before the next batch are gone, and ``failOnDataLoss`` is set.
        """
        port, group = self._port(), self._group
        with port.snapshot() as state:
            if group.name not in state.groups:
                return []
        if group.is_automatic:
            self._consumer()
            port.record_plan(group.name)
        with port.snapshot() as state:
            if group.name in state.groups:
                self._tell_missed(state, begin, RangeSet())
        return []

    def _check_batch(self, begin: int, end: int) -> None:
        """Refuse a checkpoint that does not fit, and report events that the query may never have read.

        Args:
            begin: the query has everything up to this ID.
            end: the last ID of the batch; ``begin`` if there is none yet.

        Raises:
            CheckpointMismatchError: the checkpoint does not fit; or ``failOnDataLoss`` is set and the group never took
                some of the events up to ``begin``.
        """
        self._source.check_new_group(self._open(), begin)
        consumer = self._consumer()
        with self._port().snapshot() as state:
            check_batch(state, self._group, begin, end, self._path, of_set=self._options.of_set)
            passed = never_taken(state, self._group.name, begin)
        pass_over(passed, self._group, begin, self._path, fail=self._options.fail_on_data_loss)
        if passed and self._finished.takes.is_position(begin):
            consumer.commit(passed)
        self._source.continues()

    def _tell_missed(self, state: ChannelState, begin: int, told: RangeSet) -> RangeSet:
        """Report what the group missed of the query's events after one of them, and return all of it."""
        after = self._query.missed_after(begin)
        return tell_missed(self._open(), state, self._group.name, after, told, self._options)

    def _reset_group(self, reset: str, begin: int) -> int:
        """Move the group to where the query's first batch begins, unless that was done before.

        Events may have left the channel since Spark wrote that down. The batch then begins behind them.

        Args:
            reset: the reset's name.
            begin: the batch has the events after this one.

        Returns:
            The event after which the batch begins.

        Raises:
            CheckpointMismatchError: another query has reset the group since.
            DataLossError: the first events have left the channel (`QueryStart.miss`).
        """
        consumer = self._consumer()
        with self._port().snapshot() as state:
            begins = max(begin, state.beginning() - 1)
            if is_done(reset, state.groups[consumer.group].reset, consumer.group, self._path):
                return begins
        if begin < begins:
            self._start.miss(begin + 1, begins, self._path)
        self._lease.keep()
        consumer.seek(begins, reset)
        self._finished.own(consumer)
        return begins

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _open(self) -> Channel:
        return self._lease.channel()

    def _port(self) -> ChannelPort:
        return self._open().port()

    def _consumer(self) -> Consumer:
        return self._lease.consumer()

    def _own_group(self, channel: Channel) -> Consumer:
        consumer = self._source.own(channel)
        self._finished.own(consumer)
        if self._group.is_automatic:
            self._lease.keep()
        return consumer

    def _check_history(self, end: Offset, read_id: int | None) -> None:
        """Refuse an offset of Spark's if the channel never had the events up to there (`check_history`)."""
        port = self._port()
        with port.snapshot() as state:
            check_history(state, self._group, end, read_id, self._path, of_set=self._options.of_set)
        check_put_time(end, port.put_time_us(end.event_id) if end.put_us else 0, read_id, self._path)

    def _hear(self, offset: Offset, read_id: int) -> None:
        """Note as which group an offset of Spark's says that the query reads (`QueryGroup.hear`)."""
        if self._group.hear(offset, read_id) and self._lease.owner() is not None:
            self._lease.close()

    def _to_json(self, offset: Offset) -> OffsetJson:
        """Return an offset for Spark, with the restore and the recovery after which its event was put."""
        with self._port().snapshot() as state:
            restore, recovery = state.restore_before(offset.event_id), state.recovery_before(offset.event_id)
        return replace(offset, restore=restore, recovery=recovery).to_json()

    def _parse(self, value: OffsetJson) -> Offset:
        return Offset.parse(value, self._open().uuid, self._path)
