"""How soon a new query has its first batch: the channel beside Spark's Parquet files, as a source and as a sink.

Each query ends between two batches. Spark ends the Python processes of tasks that a stop interrupts, so the next query
would start new ones; and a stop meets the tasks of some contestants more often than those of others.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import spillable_stream as ss
from benchmarks import spark_limit
from benchmarks.rounds import Figures, Group, Plan
from benchmarks.spark_session import ROUNDS, session, stop, wait

__all__ = ["FIRST", "LIMIT", "OURS", "PEER", "SECOND", "SINK", "SOURCE", "Starts", "groups"]

SOURCE, SINK = "spark start, source", "spark start, sink"
PEER, OURS = "Spark's Parquet files", "spillable_stream"
LIMIT = "one in Python that does nothing"
FIRST, SECOND = "first batch", "second batch"
_ROWS = 1_000
_BATCHES = 2
_TRIGGER = "2 seconds"  # the first batch does not wait for it
_SCHEMA = pa.schema([("id", pa.int64())])


def groups(_: Plan, directory: Path) -> Iterator[Group]:
    """Yield a group for sources and one for sinks. A query before each makes the JVM warm."""
    with session() as spark, tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as place:
        starts = Starts(spark, Path(place))
        of_source = {PEER: starts.from_files, LIMIT: starts.from_nothing, OURS: starts.from_channel}
        title = "A new query, from a source into noop"
        yield Group(SOURCE, title, "ms", PEER, of_source, ROUNDS, warm_ups=1)
        of_sink = {PEER: starts.to_files, LIMIT: starts.to_nothing, OURS: starts.to_channel}
        title = "A new query, from rate-micro-batch into a sink"
        yield Group(SINK, title, "ms", PEER, of_sink, ROUNDS, warm_ups=1)


class Starts:
    """Starts queries, and measures until their first batch and their second one are done.

    Args:
        spark: the session.
        directory: where what they read is written.
    """

    def __init__(self, spark: Any, directory: Path) -> None:
        self._spark = spark
        self._files, self._channel = directory / "parquet", directory / "channel"
        spark.range(0, _ROWS * _BATCHES, 1, _BATCHES).write.parquet(str(self._files))
        spark.dataSource.register(spark_limit.LimitSource)
        self._batch = directory / "batch.arrow"
        spark_limit.write_batch(self._batch, _batch(0))
        with ss.Channel(self._channel, schema=_SCHEMA, minimum_required_space=0) as channel:
            channel.consumer("keeper")  # takes nothing, so that the rows stay
            for first in range(0, _ROWS * _BATCHES, _ROWS):
                with channel.put_transaction() as tx:
                    tx.put_batch(_batch(first))

    def from_files(self, place: Path) -> Figures:
        """Read files."""
        reader = self._spark.readStream.schema("id BIGINT").format("parquet").option("maxFilesPerTrigger", 1)
        return self._start(reader.load(str(self._files)), "noop", place)

    def from_channel(self, place: Path) -> Figures:
        """Read the channel, as a group of its own."""
        reader = self._spark.readStream.format("spillable").option("group", uuid.uuid4().hex)
        return self._start(reader.option("maxEventsPerTrigger", _ROWS).load(str(self._channel)), "noop", place)

    def from_nothing(self, place: Path) -> Figures:
        """Read a batch from memory."""
        reader = self._spark.readStream.format(spark_limit.NAME).schema("id BIGINT")
        return self._start(reader.options(batch=str(self._batch), rows=str(_ROWS)).load(), "noop", place)

    def to_files(self, place: Path) -> Figures:
        """Write files."""
        return self._start(self._rows(), "parquet", place)

    def to_channel(self, place: Path) -> Figures:
        """Write to a channel, which the query makes."""
        return self._start(self._rows(), "spillable", place)

    def to_nothing(self, place: Path) -> Figures:
        """Pass rows to Python and drop them."""
        return self._start(self._rows(), spark_limit.NAME, place)

    def _rows(self) -> Any:
        return self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()

    def _start(self, stream: Any, sink: str, place: Path) -> Figures:
        writer = stream.writeStream.format(sink).trigger(processingTime=_TRIGGER)
        began = time.perf_counter()
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "out"))

        def first() -> bool:
            return query.lastProgress is not None and query.lastProgress.numInputRows > 0

        try:
            wait(query, first)
            seconds = time.perf_counter() - began
            wait(query, lambda: len([r for r in query.recentProgress if r.numInputRows]) >= _BATCHES)
            durations = [r.durationMs["triggerExecution"] for r in query.recentProgress if r.numInputRows]
            wait(query, lambda: not query.status["isTriggerActive"])
            return {FIRST: seconds * 1000, SECOND: float(durations[1])}
        finally:
            stop(query)


def _batch(first: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + _ROWS))], schema=_SCHEMA)
