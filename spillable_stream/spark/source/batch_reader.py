"""The batch source: ``spark.read`` looks at what is in the channel and takes nothing.

It takes no filters over from Spark, though Spark 4.1 to 4.3 offer them: a reader that leaves rows out
for a filter leaves them out of every other use of the same DataFrame, a union of two filters among
them (seen on 4.1.1, 4.2.1 and 4.3.0). Options choose the events to read instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import ChannelPort, one_look
from spillable_stream.errors import OptionError
from spillable_stream.spark.channel_pool import visit_to_read
from spillable_stream.spark.schema import check_read_schema, naming
from spillable_stream.spark.source.offset import ending_id, starting_id
from spillable_stream.spark.source.partition import TaskSource, check_loss, plan_partitions
from spillable_stream.spark.source.read_options import BatchOptions
from spillable_stream.spark.spark_errors import short_traces
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["SpillableBatchReader"]


class _Wanted(NamedTuple):
    """What a batch read should return, and what of that is not there.

    Args:
        ranges: the events to read, in order.
        lost: those that were lost.
        removed: those that left by age or size before the read's group took them.
    """

    ranges: list[Range]
    lost: Iterable[Range]
    removed: Iterable[Range]


@short_traces
class SpillableBatchReader(TaskSource[BatchOptions], DataSourceReader):
    """Reads the events that are in a channel now, kept ones too, also of one that can't be written.

    Args:
        path: the channel's directory.
        options: the batch read's options.
        schema: the schema that Spark expects.
    """

    def __init__(self, path: str, options: BatchOptions, schema: StructType) -> None:
        super().__init__(schema, options)
        self._path = path

    @one_look()
    def partitions(self) -> list[InputPartition]:
        """Return the events now in the channel, split for the tasks.

        Raises:
            DataLossError: some that were asked for are gone.
            OptionError: no such group, offsets beyond the channel's end, or an end before the start.
            SchemaError: the channel has no such column.
        """
        with visit_to_read(self._path) as channel:
            with naming(self._path):
                check_read_schema(self._schema, channel.schema, self._options.metadata_types)
            starting, last = self._span(channel)
            port = channel.port()
            with port.snapshot() as state:  # in which the first event is looked for too: it may not leave in between
                first = 1 if starting == "earliest" else port.starting_position(starting) + 1
                self._check_order(state, starting, last)
                ranges, missed, removed = self._wanted(port, state, first, last)
                check_loss(channel, state, missed, self._options, removed)
                expired_here = RangeSet(port.expired(ranges))
                left = [r for each in ranges for r in expired_here.gaps(*each)]
                return list(plan_partitions(port, state, left, self._options))

    def _span(self, channel: Channel) -> tuple[str, int]:
        """Return where the options let the read start (`starting_id`), and the last ID that they leave."""
        if self._options.starting_offsets == "latest":
            raise OptionError("startingOffsets must be earliest, an ID or an offset for a batch read, not latest")
        return starting_id(channel, self._options), ending_id(channel, self._options)

    def _check_order(self, state: ChannelState, starting: str, last: int) -> None:
        """Refuse a read that ends before it begins. One that ends where it begins has no events, and is right."""
        by_time = self._options.starting_timestamp is not None
        if starting == "earliest" or (by_time and self._options.ending_timestamp is not None):
            return  # which of two times is later, the options say
        first = int(starting.removesuffix("+"))
        if first <= last + 1 or (by_time and first <= state.beginning()):  # at that time others came, and have left
            return
        start = "startingTimestamp" if by_time else "startingOffsets"
        end = "endingOffsets" if self._options.ending_timestamp is None else "endingTimestamp"
        raise OptionError(
            f"a read of {self._path} can't begin with the event {first}, as {start} says, and end with the event "
            f"{last}, as {end} says: give it an earlier start or a later end"
        )

    def _wanted(self, port: ChannelPort, state: ChannelState, first: int, last: int) -> _Wanted:
        """Return the events to read, and those that are missed."""
        if (name := self._options.group) is None:
            gone, first = state.gone(), max(first, state.beginning())
            return _Wanted(list(gone.gaps(first, last)), gone.within(first, last), [])
        group = port.group(name)
        untaken = group.untaken(first, last)
        return _Wanted(list(untaken), group.lost.within(first, last), group.removed.within(first, last))
