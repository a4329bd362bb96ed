"""The streaming source of a set of channels: each is read as it would be alone, and a micro-batch has a part of each.

::

    initialOffset    every channel that is there, each where the options say
    latestOffset     ask all ─▶ what waits in each ─▶ share the limits ─▶ answer all
                     one that has joined since begins with its first event that is still there
    partitions       each channel's take, one after another in the micro-batch: order holds within a channel
    commit           each channel's take

So nothing is promised of two channels together but that the query's offset has both: Spark writes it down before the
batch, and plans the same batch again after a crash.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel_set import ChannelSet, none_fits
from spillable_stream.engine.port import one_look
from spillable_stream.errors import ChannelClosedError, NotAChannelError, OptionError
from spillable_stream.spark.source.idle_polls import IdlePolls, PolledTogether
from spillable_stream.spark.source.latest_offset import Backlog
from spillable_stream.spark.source.load_identity import load_name
from spillable_stream.spark.source.offset import Offset, OffsetJson
from spillable_stream.spark.source.partition import EventPartition, TaskSource
from spillable_stream.spark.source.query_position import Asked
from spillable_stream.spark.source.read_limits import (
    ReadLimit,
    SupportsTriggerAvailableNow,
    default_limit,
    is_everything,
)
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_limits import limits_of_each
from spillable_stream.spark.source.set_members import SetMembers
from spillable_stream.spark.source.set_offset import MemberOffset, SetOffset
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from spillable_stream.spark.source.worker_end import at_end, not_at_end
from spillable_stream.spark.spark_errors import short_traces

__all__ = ["SpillableSetReader"]

P = ParamSpec("P")
T = TypeVar("T")


def _whole(method: Callable[Concatenate[SpillableSetReader, P], T]) -> Callable[Concatenate[SpillableSetReader, P], T]:
    """Let one of Spark's calls look at each log once, and end before a signal ends the worker."""

    @functools.wraps(method)
    def call(self: SpillableSetReader, /, *args: P.args, **named: P.kwargs) -> T:
        with self._calls, one_look():
            return method(self, *args, **named)

    return call


@short_traces
class SpillableSetReader(TaskSource[StreamOptions], DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads several channels of one schema as one stream. It opens nothing before its first call.

    Args:
        channels: where they are.
        options: the source's options; limits count for all channels together.
        schema: the schema that Spark expects.
        load: the name of the ``load()`` that it reads for (`load_identity`); by default a new one.

    Raises:
        OptionError: an option says which events of one channel to begin with.
    """

    def __init__(self, channels: ChannelSet, options: StreamOptions, schema: StructType, load: str = "") -> None:
        if options.starting_offsets not in ("earliest", "latest"):
            raise OptionError(
                "startingOffsets must be earliest or latest for a set of channels, each of which has IDs of its own; "
                "or give a startingTimestamp"
            )
        super().__init__(schema, replace(options, of_set=True))
        self._channels = channels
        self._members = SetMembers(channels, self._options, schema, load or load_name())
        self._last: SetOffset | None = None  # the last end that was planned, or where the query begins
        self._beginning: SetOffset | None = None  # until the first batch is planned
        self._first_end: SetOffset | None = None  # where that ends, as this worker has said
        self._idle = IdlePolls()
        self._ends_soon = False  # with AvailableNow, as long as it is not known where
        self._is_complete = False  # with AvailableNow: what comes later does not belong to it
        self._turn = 0
        self._calls = threading.RLock()  # of Spark's call, or of the thread that closes the channels at the end
        self._at_end: int | None = None

    # ── what Spark's long-lived worker calls ────────────────────────────────────────────────

    @_whole
    def initialOffset(self) -> OffsetJson:
        """Return where the query begins in each channel that is there.

        Raises:
            NotAChannelError: there is none.
        """
        if not self._members:  # another one that has come since joins the query, which has begun where this said
            self._look_for_channels(None)
        offsets = self._members.each(self._members, lambda _, reader: reader.initialOffset())
        if not offsets:
            raise none_fits(self._channels)
        self._last = SetOffset(
            {uuid: MemberOffset(self._members[uuid].path, offset) for uuid, offset in offsets.items()}
        )
        self._beginning = self._last
        return self._last.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options ask for (Spark 4.2 and later)."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end where each channel ends when Spark next asks, which it does at once.

        Only then it is known which channels the query has, and which ones join it.
        """
        self._ends_soon = True

    @_whole
    def latestOffset(self, start: OffsetJson | None = None, limit: ReadLimit | None = None) -> OffsetJson:
        """Return where the next micro-batch ends in each channel. An idle query waits a moment for events.

        Args:
            start: where the micro-batch begins; None before Spark 4.2, where it begins at the last planned end.
            limit: Spark's limit. The options' limits apply unless Spark wants everything available.

        Raises:
            CheckpointMismatchError: the query can't continue from there.
            DataLossError: a channel is gone, and ``failOnDataLoss`` is set.
        """
        begin = self._last if start is None else self._parse(start)
        self._look_for_channels(begin)
        if begin is not None:
            self._members.require_all(begin)  # before any group is owned
        if self._ends_soon:
            self._ends_soon, self._is_complete = False, True
            self._members.each(self._members, lambda _, reader: reader.prepareForTriggerAvailableNow())
        asked = self._ask(begin, is_told=start is not None)
        ends = self._answers(asked, self._waiting(asked), everything=is_everything(limit))
        if begin is not None:
            self._members.require_all(begin)
        found = {} if begin is None else dict(begin.offsets)
        for uuid, end in ends.items():
            if begin is None or uuid in begin.offsets or end["writeOrderId"] > asked[uuid].question.begin_id:
                found[uuid] = MemberOffset(self._members[uuid].path, end)
        answer = SetOffset(found)
        if begin is not None and begin == self._beginning:
            self._first_end = answer
        return answer.to_json()

    @_whole
    def reportLatestOffset(self) -> OffsetJson:
        """Return where each channel ends, and what a listener needs, for the query's progress (Spark 4.2 and later)."""
        found = self._members.each(self._members, lambda _, reader: reader.reportLatestOffset())
        reports = sorted(found.items())
        lags = [report["lagEvents"] for _, report in reports] or [0]
        return {
            "avgOffsetsBehindLatest": sum(lags) / len(lags),
            "channels": dict(reports),
            "maxOffsetsBehindLatest": max(lags),
            "minOffsetsBehindLatest": min(lags),
        }

    @_whole
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Write the takes of a micro-batch, and return its partitions, channel by channel.

        Raises:
            CheckpointMismatchError: the offsets are from other channels, or from an old checkpoint.
            DataLossError: events in the range, or a channel, are gone, and ``failOnDataLoss`` is set.
        """
        began, ended = self._parse(start), self._parse(end)
        self._idle.are_over()
        self._look_for_channels(ended)
        self._members.require_all(ended)
        none_of_it = [uuid for uuid, member in self._members.items() if uuid not in ended.offsets and not member.joins]
        self._members.drop(none_of_it)
        self._last = ended
        spans: dict[str, tuple[OffsetJson, OffsetJson]] = {}
        for uuid, at in sorted(ended.offsets.items(), key=lambda item: item[1].path):
            begin = began.offsets[uuid].offset if uuid in began.offsets else _beginning_of(at.offset)
            member = self._members.get(uuid)
            if member is not None and not begin == at.offset == member.planned:
                spans[uuid] = begin, at.offset
                member.planned = at.offset
        parts = self._members.each(spans, lambda uuid, reader: reader.partitions(*spans[uuid]))
        self._members.require_all(ended)
        if ended == self._first_end:
            self._tell_of_quiet_channels(parts)
        self._beginning = self._first_end = None
        return [partition for part in parts.values() for partition in part]

    def _tell_of_quiet_channels(self, parts: dict[str, list[InputPartition]]) -> None:
        """Tell the first task of a query's first batch what is noted in the channels that have no events in it."""
        first = next((part[0] for part in parts.values() if part), None)
        if isinstance(first, EventPartition) and first.batch is not None:
            quiet = [uuid for uuid in self._members if not parts.get(uuid)]
            notes = self._members.each(quiet, lambda _, reader: reader.query_notes())
            first.batch = replace(first.batch, elsewhere=tuple(note for found in notes.values() for note in found))

    @_whole
    def commit(self, end: OffsetJson) -> None:
        """Commit the takes of everything up to ``end``, which Spark has committed."""
        done = {uuid: at.offset for uuid, at in self._parse(end).offsets.items() if uuid in self._members}
        new = [uuid for uuid, offset in done.items() if self._members[uuid].committed != offset]
        self._idle.are_over()
        for uuid in self._members.each(new, lambda uuid, reader: reader.commit(done[uuid])):
            self._members[uuid].committed = done[uuid]

    @_whole
    def stop(self) -> None:
        """Close the channels. Spark does not call this reliably."""
        if self._at_end is not None:
            not_at_end(self._at_end)
            self._at_end = None
        self._members.drop(list(self._members))

    # ── where a micro-batch ends ────────────────────────────────────────────────────────────

    def _ask(self, begin: SetOffset | None, *, is_told: bool) -> dict[str, Asked]:
        """Ask every channel where the micro-batch ends; one that is not in its beginning begins by itself."""

        def ask(uuid: str, reader: SpillableStreamReader) -> Asked:
            at = begin.offsets.get(uuid) if begin else None
            if at is not None and (is_told or self._members[uuid].planned is None):
                return reader.ask(at.offset)
            return reader.ask(reader.initialOffset() if is_told else None)

        return self._members.each(self._members, ask)

    def _waiting(self, asked: dict[str, Asked]) -> dict[str, Backlog]:
        """Return what waits in each channel. An idle query waits a moment for something."""
        is_unfinished = any(a.unfinished_id is not None for a in asked.values())
        waiting: dict[str, Backlog] = {}

        def is_there() -> bool:
            nonlocal waiting
            uuids = [uuid for uuid in asked if uuid in self._members]
            waiting = self._members.each(uuids, lambda uuid, reader: reader.waiting(asked[uuid]))
            return is_unfinished or any(w.events for w in waiting.values())

        if not is_there() and not self._is_complete and self._idle.may_wait():
            ports = self._members.each(waiting, lambda _, reader: reader.port())
            with contextlib.suppress(ChannelClosedError, NotAChannelError):  # the next call finds out which one it is
                self._idle.wait(PolledTogether(list(ports.values())), is_there)
        self._idle.record(nothing=not is_unfinished and not any(w.events for w in waiting.values()))
        return waiting

    def _answers(
        self, asked: dict[str, Asked], waiting: dict[str, Backlog], *, everything: bool
    ) -> dict[str, OffsetJson]:
        """Return where the micro-batch ends in each channel."""
        limits = limits_of_each(list(waiting.values()), self._options, self._turn, is_last=self._is_complete)
        self._turn += 1
        of_each = dict(zip(waiting, limits, strict=True))
        # A batch that Spark lost, in which only some channels had events, is planned again as it was.
        is_again = any(a.unfinished_id is not None for a in asked.values())

        def answer(uuid: str, reader: SpillableStreamReader) -> OffsetJson:
            limits = of_each[uuid]
            if is_again or (limits is None and not everything):
                return reader.decline(asked[uuid])
            return reader.answer(asked[uuid], None if everything else limits)

        return self._members.each([uuid for uuid in of_each if uuid in self._members], answer)

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _look_for_channels(self, known: SetOffset | None) -> None:
        """Look for channels (`SetMembers.look`), which close when a signal ends the worker."""
        if self._at_end is None:  # here, since the threads that open the channels can't heed signals
            self._at_end = at_end(self.stop)
        self._members.look(known, is_complete=self._is_complete)

    def _parse(self, value: OffsetJson) -> SetOffset:
        return SetOffset.parse(value, str(self._channels))


def _beginning_of(end: OffsetJson) -> OffsetJson:
    """Return where a channel's first batch begins: its end knows that."""
    offset = Offset.of(end)
    assert offset is not None
    if offset.start_id is None:
        return end
    # The restore, the recovery and the time are those of the end's event.
    of_event = replace(offset, start_id=None, made_at=None, restore="", recovery="", put_us=0)
    return replace(of_event, event_id=offset.start_id).to_json()
