"""The batch source of a set of channels: what is in each of them now, one channel after another."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel_set import ChannelSet, none_fits
from spillable_stream.errors import OptionError, SchemaError
from spillable_stream.spark.schema import of_set_member
from spillable_stream.spark.side_by_side import side_by_side
from spillable_stream.spark.source.batch_reader import SpillableBatchReader
from spillable_stream.spark.source.partition import TaskSource
from spillable_stream.spark.source.read_options import BatchOptions
from spillable_stream.spark.spark_errors import short_traces

__all__ = ["SpillableSetBatchReader"]


@short_traces
class SpillableSetBatchReader(TaskSource[BatchOptions], DataSourceReader):
    """Reads the events that are in several channels now.

    Args:
        channels: where they are.
        options: the batch read's options.
        schema: the schema that Spark expects.

    Raises:
        OptionError: an option names events of one channel.
    """

    def __init__(self, channels: ChannelSet, options: BatchOptions, schema: StructType) -> None:
        for name, value, allowed in (
            ("startingOffsets", options.starting_offsets, "earliest"),
            ("endingOffsets", options.ending_offsets, "latest"),
        ):
            if value != allowed:
                raise OptionError(
                    f"{name} must be {allowed} for a batch read of a set of channels, each of which has IDs of its "
                    "own; or give a timestamp"
                )
        super().__init__(schema, replace(options, of_set=True))
        self._channels = channels

    def partitions(self) -> list[InputPartition]:
        """Return the events now in the channels, split for the tasks.

        Raises what `SpillableBatchReader.partitions` raises, of the first channel that does.
        """
        members = self._channels.find()
        if not members:
            raise none_fits(self._channels)
        parts = side_by_side([partial(self._partitions, member.path) for member in sorted(members)])
        return [partition for part in parts for partition in part]

    def _partitions(self, path: str) -> list[InputPartition]:
        try:
            return SpillableBatchReader(path, self._options, self._schema).partitions()
        except SchemaError as e:
            raise of_set_member(e) from None
