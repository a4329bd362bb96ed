"""The query of a streaming source, as far as Spark's long-lived worker knows it.

Spark's calls only pass offsets. Here they are read, compared with what the channel and its group have, and written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.port import ChannelPort
from spillable_stream.spark.source.checkpoint_check import (
    check_batch,
    check_history,
    check_put_time,
    never_taken,
    pass_over,
)
from spillable_stream.spark.source.finished_batches import FinishedBatches
from spillable_stream.spark.source.group_lease import GroupLease
from spillable_stream.spark.source.load_identity import LoadIdentity
from spillable_stream.spark.source.offset import Offset, OffsetJson
from spillable_stream.spark.source.partition import check_loss
from spillable_stream.spark.source.query_group import QueryGroup
from spillable_stream.spark.source.query_position import QueryPosition
from spillable_stream.spark.source.query_start import QueryStart
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.source_channel import SourceChannel
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["StreamQuery"]


class StreamQuery:
    """What a source knows of its query. It opens nothing before it is asked for the channel.

    Args:
        path: the channel's directory.
        options: the source's options.
        schema: the schema that Spark expects.
        load: the name of the ``load()`` that it reads for (`load_identity`).

    Attributes:
        path: the channel's directory.
        options: the source's options.
        group: as which group it reads.
        start: where it begins if it is new.
        load: for which ``load()`` it reads.
        source: what opens the channel.
        lease: what is open and owned.
        finished: the batches that Spark has committed.
        position: where it is.
    """

    def __init__(self, path: str, options: StreamOptions, schema: StructType, load: str) -> None:
        self.path: str = path
        self.options: StreamOptions = options
        self.group: QueryGroup = QueryGroup(options.group)
        self.start: QueryStart = QueryStart(options, self.group)
        self.load: LoadIdentity = LoadIdentity(path, load)
        self.source: SourceChannel = SourceChannel(path, options, schema, self.group, self.start, self.load)
        self.lease: GroupLease = GroupLease(
            self.source.open, self._own_group, lambda: self.finished.commit_before_close()
        )
        self.finished: FinishedBatches = FinishedBatches(self.lease, options, path)
        self.position: QueryPosition = QueryPosition()

    def channel(self) -> Channel:
        """Return the channel, open; raises what `SourceChannel.open` does."""
        return self.lease.channel()

    def port(self) -> ChannelPort:
        """Return the channel's port; raises what `channel` does."""
        return self.channel().port()

    def consumer(self) -> Consumer:
        """Return the consumer of the group, which the source owns from now on; raises what `SourceChannel.own` does."""
        return self.lease.consumer()

    def _own_group(self, channel: Channel) -> Consumer:
        consumer = self.source.own(channel)
        self.finished.own(consumer)
        if self.group.is_automatic:
            self.lease.keep()
        return consumer

    def parse(self, value: OffsetJson) -> Offset:
        """Return an offset of Spark's.

        Raises:
            CheckpointMismatchError: it is of another channel, or of another source.
        """
        return Offset.parse(value, self.channel().uuid, self.path)

    def to_json(self, offset: Offset) -> OffsetJson:
        """Return an offset for Spark, with the restore and the recovery after which its event was put."""
        with self.port().snapshot() as state:
            restore, recovery = state.restore_before(offset.event_id), state.recovery_before(offset.event_id)
        return replace(offset, restore=restore, recovery=recovery).to_json()

    def check_history(self, end: Offset, read_id: int | None) -> None:
        """Refuse an offset of Spark's if the channel never had the events up to there (`check_history`).

        Args:
            end: the offset.
            read_id: the query has everything up to this event; None if that is not known.

        Raises:
            CheckpointMismatchError: it never had them.
        """
        port = self.port()
        with port.snapshot() as state:
            check_history(state, self.group, end, read_id, self.path, of_set=self.options.of_set)
        check_put_time(end, port.put_time_us(end.event_id) if end.put_us else 0, read_id, self.path)

    def hear(self, offset: Offset, read_id: int) -> None:
        """Note as which group an offset of Spark's says that the query reads (`QueryGroup.hear`).

        Args:
            offset: the offset.
            read_id: the query has everything up to this event.
        """
        if self.group.hear(offset, read_id) and self.lease.owner() is not None:
            self.lease.close()

    def check_batch(self, begin: int, end: int) -> None:
        """Refuse a checkpoint that does not fit, and report events that the query may never have read.

        Args:
            begin: the query has everything up to this ID.
            end: the last ID of the batch; ``begin`` if there is none yet.

        Raises:
            CheckpointMismatchError: the checkpoint does not fit; or ``failOnDataLoss`` is set and the group never took
                some of the events up to ``begin``.
        """
        self.source.check_new_group(self.channel(), begin)
        consumer = self.consumer()
        with self.port().snapshot() as state:
            check_batch(state, self.group, begin, end, self.path, of_set=self.options.of_set)
            passed = never_taken(state, self.group.name, begin)
        pass_over(passed, self.group, begin, self.path, fail=self.options.fail_on_data_loss)
        if passed and self.finished.takes.is_position(begin):
            consumer.commit(passed)
        self.source.continues()

    def tell_missed(self, state: ChannelState, begin: int, told: RangeSet) -> RangeSet:
        """Report what the group missed of the query's events after one of them, and return all of it.

        Args:
            state: the channel's state.
            begin: the event.
            told: what was reported before.

        Raises:
            DataLossError: it missed some, and ``failOnDataLoss`` is set.
        """
        known, after = state.groups[self.group.name], self.position.missed_after(begin)
        lost, removed = _beyond(known.lost, after, told), _beyond(known.removed, after, told)
        check_loss(self.channel(), state, lost, self.options, removed)
        return told.union([*lost, *removed])


def _beyond(missed: Iterable[Range], after: int, told: RangeSet) -> list[Range]:
    """Return what a group missed after an event, without what was reported before."""
    return [r for first, last in missed for r in told.gaps(max(first, after + 1), last)]
