"""The streaming source: a micro-batch is a take transaction of a group.

``partitions(start, end)`` writes TAKE, ``commit(end)`` commits it. Spark calls ``commit`` one batch
late and ``stop`` never, so nothing here depends on either: the group's position only says what may
be forgotten, and a query's own offsets say what it reads. The group's lock is the kernel's, so that
the next query has it as soon as this one's worker is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.ranges import Range
from spillable_stream.errors import DataLossError
from spillable_stream.spark.offset import event_id, offset
from spillable_stream.spark.partition import EventPartition, check_loss, plan_partitions, read_partition
from spillable_stream.spark.schema import arrow_schema

try:  # Spark 4.2 and later
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1 pass no limits

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Stands for the class that this Spark does not have."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for the class that this Spark does not have."""

    ReadLimit = ReadMaxBytes = ReadMaxRows = Any

__all__ = ["SpillableStreamReader"]


class SpillableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a channel as a stream. Opens nothing before its first call.

    Args:
        path: the channel's directory.
        options: the source's options, by keyword name.
        schema: the schema that Spark expects.
    """

    def __init__(self, path: str, options: dict[str, Any], schema: StructType) -> None:
        self._path = path
        self._options = options
        self._schema = schema
        self._channel: Channel | None = None
        self._taking: dict[tuple[int, int], tuple[int, list[Range]]] = {}  # micro-batch → take transaction, events
        self._owned: Consumer | None = None
        self._target: int | None = None
        self._seen = 0
        self._done: int | None = None

    # ── what Spark's long-lived worker calls ────────────────────────────────────────────────

    def initialOffset(self) -> dict[str, Any]:
        """Return the group's position; it is stored, so it is the same after every restart."""
        self._done = 0  # a new query: it misses all that the group lost
        return self._offset(self._consumer().position())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options ask for (Spark 4.2 and later)."""
        if self._options["max_events_per_trigger"]:
            return ReadMaxRows(self._options["max_events_per_trigger"])
        if self._options["max_bytes_per_trigger"]:
            return ReadMaxBytes(self._options["max_bytes_per_trigger"])
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the channel ends now: the query stops there."""
        self._consumer()
        self._target = self._open().engine().follow().last_id

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return where the next micro-batch ends.

        Args:
            start: where it begins; None before Spark 4.2, where the last end seen counts.
            limit: Spark's limit; the options' own limits count unless Spark wants all there is.
        """
        consumer = self._consumer()
        begin = max(self._seen, consumer.position()) if start is None else self._event_id(start)
        for first, end in reversed(self._taking):
            if first == begin + 1:  # Spark's checkpoint lost a batch that was under way: the sink may have it
                return self._offset(end)
        with self._open().engine().looking() as state:
            last = state.last_id if self._target is None else min(state.last_id, self._target)
            if not isinstance(limit, ReadAllAvailable):
                if events := self._options["max_events_per_trigger"]:
                    last = min(last, begin + events)
                if (size := self._options["max_bytes_per_trigger"]) and last > begin:
                    last = state.blocks.last_id_within(begin + 1, last, size)
        return self._offset(max(last, begin))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return where the channel ends, so that Spark's progress shows the lag."""
        return self._offset(self._open().engine().follow().last_id)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Write that the group takes a range, and return it split for the tasks.

        Raises:
            CheckpointMismatchError: the offsets are of another channel.
            DataLossError: the events have left the channel.
        """
        first, last = self._event_id(start) + 1, self._event_id(end)
        self._seen = max(self._seen, last)
        if first > last:
            return []
        consumer, engine = self._consumer(), self._open().engine()
        with engine.looking() as state:
            done = first - 1 if self._done is None else self._done  # by this query, whatever the group's position
            missed = [(max(a, done + 1), b) for a, b in consumer.lost() if b > done]
            check_loss(self._path, state, missed, fail=self._options["fail_on_data_loss"])
            wanted = next(state.gone().gaps(first, last), None)
            if wanted and (wanted[0] < state.floor or last > state.last_id):
                raise DataLossError(
                    f"the Spark checkpoint asks for the events {first} to {last}; {self._path} holds {state.floor} to "
                    f"{state.last_id}. Every group took the missing ones: delete the checkpoint to go on from the "
                    "group's position"
                )
        if (first, last) not in self._taking:
            ranges = consumer.untaken(first, last)
            self._taking[first, last] = (consumer.prepare(ranges), ranges)
        ranges = self._taking[first, last][1]
        with engine.looking() as state:
            return list(plan_partitions(engine.layout, state, ranges, self._options["min_partitions"]))

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the take of everything up to ``end``: Spark has it for good."""
        consumer, last = self._consumer(), self._event_id(end)
        first = consumer.position() + 1
        prepared, _ = self._taking.pop((first, last), (0, []))
        for (begun, done), (tx, _) in list(self._taking.items()):
            if done <= last:
                del self._taking[begun, done]
                consumer.release([], tx)
        if first <= last:
            consumer.commit([(first, last)], prepared)
        self._open().engine().checkpointing.make_if_due()

    def stop(self) -> None:
        """Close the channel, if Spark gets round to it."""
        if self._channel is not None:
            self._channel.close()
            self._channel = self._owned = None

    # ── what executors call ─────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's events as Arrow batches, in order; the same ones every time."""
        if not isinstance(partition, EventPartition):
            return iter(())
        return read_partition(partition, arrow_schema(self._schema))

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _open(self) -> Channel:
        if self._channel is None:
            self._channel = Channel(self._path, create=False)
        return self._channel

    def _consumer(self) -> Consumer:
        if self._owned is None:
            group, timeout = self._options["group"], self._options["owner_timeout"]
            starting = self._options["starting_offsets"]
            self._owned = self._open().consumer(group, timeout, starting, resume=True)
            for tx, ranges in self._owned.prepared().items():  # of a query that was killed
                self._taking[ranges[0][0], ranges[-1][1]] = (tx, ranges)
        return self._owned

    def _offset(self, last_id: int) -> dict[str, Any]:
        return offset(self._open().uuid, last_id)

    def _event_id(self, value: dict[str, Any]) -> int:
        return event_id(value, self._open().uuid, self._path)
