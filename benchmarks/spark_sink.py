"""The Spark sink beside Spark's Parquet file sink, on the same rows from `rate-micro-batch`."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks import spark_limit
from benchmarks.spark_rows import Kind
from benchmarks.spark_session import rate

__all__ = ["DISK", "LIMIT", "NOTHING", "OURS", "PEER", "Sinks"]

PEER = "Spark's Parquet file sink"
OURS = "spillable_stream"
LIMIT = "a Python sink that does nothing"
NOTHING = "Spark's noop sink"
DISK = "write and fdatasync of the channel's bytes"
_BATCHES = 7
_WRITE_BYTES = 1 << 20


class Sinks:
    """One kind of rows, made by Spark as they are written.

    Args:
        spark: the session.
        kind: the rows.
        directory: where to write.
    """

    def __init__(self, spark: Any, kind: Kind, directory: Path) -> None:
        self._spark = spark
        self._kind = kind
        self._directory = directory
        self._batch_bytes = 0
        spark.dataSource.register(spark_limit.LimitSource)

    def parquet(self) -> dict[str, float]:
        """Write Parquet files and their commit log (`_spark_metadata`); nothing is synced."""
        return self._write("parquet")

    def spillable(self) -> dict[str, float]:
        """Write to a channel; each batch is synced."""
        return self._write("spillable", {"minimumRequiredSpace": "0"})

    def noop(self) -> dict[str, float]:
        """Make the rows and drop them."""
        return self._write("noop")

    def limit(self) -> dict[str, float]:
        """Make the rows, pass them to Python and drop them."""
        return self._write(spark_limit.NAME)

    def disk(self) -> dict[str, float]:
        """Write what a batch takes in the channel with plain writes to a new file for each core, and sync."""
        data = os.urandom(_WRITE_BYTES)
        each = max(1, self._batch_bytes // 2 // _WRITE_BYTES)
        seconds = []
        for i in range(3):
            started = time.perf_counter()
            for part in range(2):
                path = self._directory / f"floor-{i}-{part}"
                with open(path, "wb", buffering=0) as file:
                    for _ in range(each):
                        file.write(data)
                    os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - started)
            for part in range(2):
                os.unlink(self._directory / f"floor-{i}-{part}")
        return {"rows_per_second": self._kind.batch_rows / sorted(seconds)[1], "cpu_ns_per_row": 0.0}

    def _write(self, sink: str, options: dict[str, str] | None = None) -> dict[str, float]:
        place = self._directory / f"{sink}-{uuid.uuid4().hex}"
        reader = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self._kind.batch_rows)
        writer = reader.load().select(*self._kind.columns()).writeStream.format(sink)
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).options(**options or {})
        try:
            figures = rate(writer.start(str(place / "out")), self._kind.batch_rows, _BATCHES)
            if sink == "spillable":
                size = sum(f.stat().st_size for f in (place / "out").rglob("segment.*"))
                self._batch_bytes = size * self._kind.batch_rows // _rows(place / "out")
            return figures
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _rows(path: Path) -> int:
    """Return how many events a channel holds."""
    import spillable_stream as ss

    with ss.Channel(path, create=False) as channel:
        return channel.engine().follow().last_id
