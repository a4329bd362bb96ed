"""The batch source: ``spark.read`` looks at what is in the channel and takes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.errors import OptionError
from spillable_stream.spark.partition import EventPartition, check_loss, plan_partitions, read_partition
from spillable_stream.spark.schema import arrow_schema
from spillable_stream.spark.visit import visit

__all__ = ["SpillableBatchReader"]


class SpillableBatchReader(DataSourceReader):
    """Reads the events that are in a channel now.

    Args:
        path: the channel's directory.
        options: the source's options, by keyword name; a ``group`` that was given narrows the
            read to what that group has yet to take.
        schema: the schema that Spark expects.
    """

    def __init__(self, path: str, options: dict[str, Any], schema: StructType) -> None:
        self._path = path
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the events now in the channel, split for the tasks."""
        with visit(self._path, create=False) as channel:
            engine = channel.engine()
            with engine.looking() as state:
                ranges = list(state.gone().gaps(state.floor, state.last_id))
                missed = [(a, b) for a, b in state.gone() if b >= state.floor]
                if name := self._options.get("group"):
                    group = state.groups.get(name)
                    if group is None:
                        known = ", ".join(map(repr, state.groups)) or "none"
                        raise OptionError(f"{self._path} has no group {name!r}; its groups are: {known}")
                    ranges = list(group.ahead.gaps(group.position + 1, state.last_id))
                    missed = list(group.lost)
                check_loss(self._path, state, missed, fail=self._options["fail_on_data_loss"])
                return list(plan_partitions(engine.layout, state, ranges, self._options.get("min_partitions")))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's events as Arrow batches, in order."""
        if not isinstance(partition, EventPartition):  # Spark's stand-in for an empty list
            return iter(())
        return read_partition(partition, arrow_schema(self._schema))
