"""The Spark source beside Spark's Parquet file stream, both into `noop`, on the same rows."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import spillable_stream as ss
from benchmarks import spark_limit
from benchmarks.spark_rows import Kind
from benchmarks.spark_session import rate

__all__ = ["LIMIT", "OURS", "PEER", "Sources"]

PEER = "Spark's Parquet file stream"
OURS = "spillable_stream"
LIMIT = "a Python source that does nothing"
_BATCHES = 8
_FILES_A_BATCH = 2  # one a core
_TRANSACTION_ROWS = 10_000  # transactionCapacity's default


class Sources:
    """One kind of rows, in Parquet files and in a channel, made once and read any number of times.

    Args:
        spark: the session.
        kind: the rows.
        directory: where to write them.
    """

    def __init__(self, spark: Any, kind: Kind, directory: Path) -> None:
        self._spark = spark
        self._kind = kind
        self._directory = directory
        self._files = directory / "parquet"
        self._channel = directory / "channel"
        rows = kind.batch_rows * _BATCHES
        frame = spark.range(0, rows, 1, _BATCHES * _FILES_A_BATCH).withColumnRenamed("id", "value")
        frame.select(*kind.columns()).write.parquet(str(self._files))
        written = spark.read.parquet(str(self._files))
        self._schema = written.schema
        self._batch = directory / "batch.arrow"
        spark_limit.write_batch(self._batch, written.limit(_TRANSACTION_ROWS).toArrow())
        spark.dataSource.register(spark_limit.LimitSource)
        with ss.Channel(self._channel, schema=self._schema, minimum_required_space=0) as channel:
            channel.consumer("keeper")  # takes nothing, so that the rows stay
            for first in range(0, rows, kind.batch_rows):
                part = spark.range(first, first + kind.batch_rows).withColumnRenamed("id", "value")
                for batch in part.select(*kind.columns()).toArrow().to_batches(_TRANSACTION_ROWS):
                    with channel.put_transaction() as tx:
                        tx.put_batch(batch)

    def parquet(self) -> dict[str, float]:
        """Read the Parquet files."""
        reader = self._spark.readStream.schema(self._schema).format("parquet")
        return self._drain(reader.option("maxFilesPerTrigger", _FILES_A_BATCH).load(str(self._files)))

    def spillable(self) -> dict[str, float]:
        """Read the channel, as a group of its own."""
        group = uuid.uuid4().hex
        reader = self._spark.readStream.format("spillable").option("group", group)
        reader = reader.option("maxEventsPerTrigger", self._kind.batch_rows)
        return self._drain(reader.load(str(self._channel)))

    def limit(self) -> dict[str, float]:
        """Read the same batch from memory again and again."""
        reader = self._spark.readStream.format(spark_limit.NAME).schema(self._schema)
        options = {"batch": str(self._batch), "rows": str(self._kind.batch_rows)}
        return self._drain(reader.options(**options).load())

    def _drain(self, stream: Any) -> dict[str, float]:
        checkpoint = self._directory / f"checkpoint-{uuid.uuid4().hex}"
        query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
        try:
            return rate(query, self._kind.batch_rows, _BATCHES)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
