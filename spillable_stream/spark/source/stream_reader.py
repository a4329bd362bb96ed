"""The streaming source: a micro-batch is a take transaction of a group.

``partitions(start, end)`` writes a TAKE, and ``commit(end)`` commits it. Spark calls ``commit`` one
batch late and never calls ``stop``, so nothing depends on either. The query's own offsets determine
what it reads; the group's position only determines what the channel may forget. The group's lock is
a kernel lock, so the next query can acquire it as soon as this one's worker has ended. Until a batch
is planned, the source holds a named group's lock only while Spark asks for batches (`group_lease`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.engine.port import ChannelPort, QueryNote, one_look
from spillable_stream.errors import NotAChannelError
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.offset_report import OffsetReport
from spillable_stream.spark.source.batch_plan import plan_batch
from spillable_stream.spark.source.idle_polls import IdlePolls
from spillable_stream.spark.source.latest_offset import Backlog, latest_event_id, waiting
from spillable_stream.spark.source.load_identity import load_name
from spillable_stream.spark.source.offset import Offset, OffsetJson
from spillable_stream.spark.source.partition import TaskSource
from spillable_stream.spark.source.query_position import Asked, Phase
from spillable_stream.spark.source.read_limits import (
    ReadLimit,
    SupportsTriggerAvailableNow,
    default_limit,
    is_everything,
)
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.stream_query import StreamQuery
from spillable_stream.spark.spark_errors import short_traces
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range

__all__ = ["SpillableStreamReader"]

P = ParamSpec("P")
T = TypeVar("T")


def _held(
    method: Callable[Concatenate[SpillableStreamReader, P], T],
) -> Callable[Concatenate[SpillableStreamReader, P], T]:
    """Hold the channel, and the group if it is owned, during one of Spark's calls, which looks at the log once."""

    @functools.wraps(method)
    def call(self: SpillableStreamReader, /, *args: P.args, **named: P.kwargs) -> T:
        with one_look(), self._query.lease.call():
            return method(self, *args, **named)

    return call


@short_traces
class SpillableStreamReader(TaskSource[StreamOptions], DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream. It opens nothing before its first call.

    Its state is in three state machines of its `StreamQuery`: `QueryPosition` (where the query is), `QueryGroup` (as
    which group it reads) and `GroupLease` (what is open and owned).

    Args:
        path: the channel's directory.
        options: the source's options.
        schema: the schema that Spark expects.
        load: the name of the ``load()`` that it reads for (`load_identity`); by default a new one.
    """

    def __init__(self, path: str, options: StreamOptions, schema: StructType, load: str = "") -> None:
        super().__init__(schema, options)
        self._path = path
        self._query = StreamQuery(path, options, schema, load or load_name())
        self._idle = IdlePolls()
        self._target: int | None = None  # the event at which a query with AvailableNow ends

    # ── what Spark's long-lived worker calls ────────────────────────────────────────────────

    @_held
    def initialOffset(self) -> OffsetJson:
        """Return where the query begins (`QueryStart`).

        A group that the options name is created if it is missing. It has no owner until Spark asks where the first
        batch ends.
        """
        query = self._query
        query.source.query_is_new = True
        channel = query.channel()
        begin = query.start.position(channel)
        query.position.begin(begin)
        return query.to_json(Offset(channel.uuid, begin, group=query.group.label, reset=query.start.reset))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options ask for (Spark 4.2 and later)."""
        return default_limit(self._options)

    @_held
    def port(self) -> ChannelPort:
        """Return the channel's port; opens the channel."""
        return self._query.port()

    @_held
    def query_notes(self) -> list[QueryNote]:
        """Return what is noted of queries that read as this group, or as groups that they created for themselves."""
        port = self._query.port()
        with port.snapshot() as state:
            groups = {self._query.group.name, *(name for name, group in state.groups.items() if group.has_planned)}
        return [note for name in sorted(groups) if (note := port.query_note(name)) is not None]

    @_held
    def prepareForTriggerAvailableNow(self) -> None:
        """Record where the channel ends now: the query stops there. One that is yet to be created has no events."""
        try:
            self._query.port().deliver()
        except NotAChannelError as e:
            if not (e.is_missing and self._options.create_if_missing):
                raise
            self._target = 0
            return
        with self._query.port().snapshot() as state:
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
        query = self._query
        query.source.query_is_new = start is None and query.position.phase is Phase.UNHEARD
        query.port().deliver()  # also of an idle query: nobody else may come
        given = None if start is None else query.parse(start)
        if given is not None:
            query.check_history(given, given.event_id)
            query.hear(given, given.event_id)
            query.source.check_new_group(query.channel(), given.event_id)
        elif query.position.phase is Phase.UNHEARD:  # before Spark 4.2: the query is new
            query.start.position(query.channel())
        consumer, uuid = query.consumer(), query.channel().uuid
        if query.start.reset is not None:  # the group is moved with the first batch, so its position says nothing yet
            begin = query.start.position(query.channel())
            return Asked(start, given, query.position.ask(given, begin, uuid), None)
        question = query.position.ask(given, consumer.position(), uuid)
        query.check_batch(question.begin_id, question.begin_id)
        if question.proven_id is not None:
            query.finished.commit_proven(question.proven_id)
        return Asked(start, given, question, query.finished.takes.unfinished(question.begin_id))

    @_held
    def waiting(self, asked: Asked) -> Backlog:
        """Return what waits for the micro-batch that Spark asks for."""
        begin = asked.question.begin_id
        with self._query.port().snapshot() as state:
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
        query, channel, group = self._query, self._query.channel(), self._query.group.name
        with channel.port().snapshot() as state:
            lag = Lag.beyond(state, group if query.start.reset is None else None, query.position.covered_id)
            marks = state.restore_before(state.last_id), state.recovery_before(state.last_id)
            path, owner = str(channel.path), query.lease.owner()
            return OffsetReport(channel.uuid, state.last_id, path, group, owner, lag, *marks).to_json()

    @_held
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Write the take of a range of events, and return its partitions.

        Raises:
            CheckpointMismatchError: the offsets are from another channel, or from an old checkpoint.
            DataLossError: events in the range were lost or removed, and ``failOnDataLoss`` is set.
        """
        self._idle.are_over()
        self._query.source.query_is_new = False
        return plan_batch(self._query, self._query.parse(start), self._query.parse(end))

    @_held
    def commit(self, end: OffsetJson) -> None:
        """Commit the take of everything up to ``end``, which Spark has committed."""
        self._idle.are_over()
        self._query.source.query_is_new = False
        query, done = self._query, self._query.parse(end)
        query.check_history(done, done.event_id)
        query.hear(done, done.event_id)
        query.consumer()
        query.finished.commit(done.event_id)
        query.port().checkpoint_if_due()

    def give_group_up(self) -> None:
        """Let the query's next source have the group, before `stop` (`GroupLease.give_up`)."""
        self._query.lease.give_up()

    def stop(self) -> None:
        """Close the channel. Spark does not call this reliably."""
        self._query.lease.close()

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

            self._idle.wait(self._query.port(), found)
        self._idle.record(nothing=end == begin)
        return end

    def _end(self, asked: Asked, limits: StreamOptions | None) -> int:
        if asked.unfinished_id is not None:
            return asked.unfinished_id
        begin, options, target = asked.question.begin_id, limits or self._options, self._target
        with self._query.port().snapshot() as state:
            untaken = self._untaken(state, begin)
            return latest_event_id(state, untaken, begin, options, target=target, everything=limits is None)

    def _untaken(self, state: ChannelState, begin: int) -> Callable[[int, int], Iterable[Range]]:
        """Return what tells which events the query has yet to read, of those after its batch's beginning."""
        if self._query.start.reset is not None:
            return state.gone().union(state.left_after(begin)).gaps
        return self._query.consumer().untaken

    def _answered(self, asked: Asked, end: int) -> OffsetJson:
        """Return the answer to `latestOffset`: to the letter what was given, where there is nothing new."""
        query, begin = self._query, asked.question.begin_id
        answer = query.position.answer(asked.question, end, query.channel().uuid)
        if end == begin:
            query.port().give_back_when_idle()
            if self._target is not None:
                query.finished.commit_due()  # nothing comes any more
        if asked.start is not None and answer == asked.given:
            return asked.start
        made_at = None if answer.start_id is None else answer.made_at or query.group.made_at
        reset = answer.reset or query.start.reset
        put_us = answer.put_us or (query.port().put_time_us(end) if end > begin else 0)
        return query.to_json(replace(answer, group=query.group.label, reset=reset, made_at=made_at, put_us=put_us))
