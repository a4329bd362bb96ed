"""The Spark source beside Spark's Parquet file stream, both into `noop`, on the same rows."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import spillable_stream as ss
from benchmarks import spark_limit, spark_rows
from benchmarks.rounds import Figures, Group, Plan
from benchmarks.spark_rows import Kind
from benchmarks.spark_session import ROUNDS, WARM_UP_ROUNDS, rate, session

__all__ = ["LIMIT", "OURS", "PEER", "Sources", "group_name", "groups"]

PEER = "Spark's Parquet file stream"
OURS = "spillable_stream"
LIMIT = "one batch from memory forever, in Python"
_BATCHES = 6
_FILES_A_BATCH = 2  # one a core
_TRANSACTION_ROWS = 10_000  # transactionCapacity's default


def group_name(kind: Kind) -> str:
    """Return the name of the group that reads such rows."""
    return f"spark source, {kind.name}"


def groups(_: Plan, directory: Path) -> Iterator[Group]:
    """Yield a group for each kind of rows. They are created when it is yielded, and are there until the next one."""
    with session() as spark:
        for kind in spark_rows.KINDS:
            with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as place:
                sources = Sources(spark, kind, Path(place))
                contestants = {LIMIT: sources.limit, PEER: sources.parquet, OURS: sources.spillable}
                title = f"Source: {kind.title}"
                yield Group(group_name(kind), title, "rows/s", LIMIT, contestants, ROUNDS, WARM_UP_ROUNDS)


class Sources:
    """One kind of rows, in Parquet files and in a channel, made once and read any number of times.

    No rows pass through the driver's JVM: Spark writes files, and Python reads them.

    Args:
        spark: the session.
        kind: the rows.
        directory: where to write them.
    """

    def __init__(self, spark: Any, kind: Kind, directory: Path) -> None:
        self._spark = spark
        self._kind = kind
        self._files = directory / "parquet"
        self._channel = directory / "channel"
        frame = spark.range(0, kind.batch_rows * _BATCHES, 1, _BATCHES * _FILES_A_BATCH).withColumnRenamed(
            "id", "value"
        )
        frame.select(*kind.columns()).write.parquet(str(self._files))
        self._schema = spark.read.parquet(str(self._files)).schema
        self._batch = directory / "batch.arrow"
        spark_limit.write_batch(self._batch, next(self._rows()))
        spark.dataSource.register(spark_limit.LimitSource)
        with ss.Channel(self._channel, schema=self._schema, minimum_required_space=0) as channel:
            channel.consumer("keeper")  # takes nothing, so that the rows stay
            for batch in self._rows():
                with channel.put_transaction() as tx:
                    tx.put_batch(batch)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files in order, a transaction's at a time."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        for path in sorted(self._files.glob("*.parquet")):
            with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
                for batch in file.iter_batches(_TRANSACTION_ROWS):
                    yield batch.cast(schema)

    def parquet(self, place: Path) -> Figures:
        """Read the Parquet files."""
        reader = self._spark.readStream.schema(self._schema).format("parquet")
        return self._drain(reader.option("maxFilesPerTrigger", _FILES_A_BATCH).load(str(self._files)), place)

    def spillable(self, place: Path) -> Figures:
        """Read the channel, as a group of its own."""
        reader = self._spark.readStream.format("spillable").option("group", uuid.uuid4().hex)
        reader = reader.option("maxEventsPerTrigger", self._kind.batch_rows)
        return self._drain(reader.load(str(self._channel)), place)

    def limit(self, place: Path) -> Figures:
        """Read the same batch from memory again and again."""
        reader = self._spark.readStream.format(spark_limit.NAME).schema(self._schema)
        options = {"batch": str(self._batch), "rows": str(self._kind.batch_rows)}
        return self._drain(reader.options(**options).load(), place)

    def _drain(self, stream: Any, place: Path) -> Figures:
        query = stream.writeStream.format("noop").option("checkpointLocation", str(place)).start()
        return rate(query, self._kind.batch_rows, _BATCHES)
