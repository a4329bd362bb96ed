"""The Spark sink beside Spark's Parquet file sink, on the same rows from `rate-micro-batch`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import spark_limit, spark_rows
from benchmarks.rounds import Figures, Group, Plan
from benchmarks.spark_rows import Kind
from benchmarks.spark_session import ROUNDS, ROWS, WARM_UP_ROUNDS, rate, session

__all__ = ["DISK", "LIMIT", "NOTHING", "OURS", "PEER", "Sinks", "group_name", "groups"]

PEER = "Spark's Parquet file sink"
OURS = "spillable_stream"
LIMIT = "a sink in Python that drops its rows"
NOTHING = "Spark's noop sink"
DISK = "write and fdatasync of the channel's bytes"
_BATCHES = 5
_WRITE_BYTES = 1 << 20


def group_name(kind: Kind) -> str:
    """Return the name of the group that writes such rows."""
    return f"spark sink, {kind.name}"


def groups(_: Plan, __: Path) -> Iterator[Group]:
    """Yield a group for each kind of rows."""
    with session() as spark:
        for kind in spark_rows.KINDS:
            yield Sinks(spark, kind).group()


class Sinks:
    """One kind of rows, made by Spark as they are written.

    Args:
        spark: the session.
        kind: the rows.
    """

    def __init__(self, spark: Any, kind: Kind) -> None:
        self._spark = spark
        self._kind = kind
        self._batch_bytes = 0
        spark.dataSource.register(spark_limit.LimitSource)

    def group(self) -> Group:
        """Return who takes part: the channel first, since the disk's figure is of its bytes."""
        contestants = {
            OURS: self.spillable,
            PEER: self.parquet,
            LIMIT: self.limit,
            NOTHING: self.noop,
            DISK: self.disk,
        }
        title = f"Sink: {self._kind.title}"
        return Group(group_name(self._kind), title, "rows/s", LIMIT, contestants, ROUNDS, WARM_UP_ROUNDS)

    def parquet(self, place: Path) -> Figures:
        """Write Parquet files and their commit log (`_spark_metadata`); nothing is synced."""
        return self._write(place, "parquet")

    def spillable(self, place: Path) -> Figures:
        """Write to a channel; each batch is synced."""
        figures = self._write(place, "spillable", {"minimumRequiredSpace": "0"})
        size = sum(f.stat().st_size for f in (place / "out").rglob("segment.*"))
        self._batch_bytes = size * self._kind.batch_rows // _rows(place / "out")
        return figures

    def noop(self, place: Path) -> Figures:
        """Make the rows and drop them."""
        return self._write(place, "noop")

    def limit(self, place: Path) -> Figures:
        """Make the rows, pass them to Python and drop them."""
        return self._write(place, spark_limit.NAME)

    def disk(self, place: Path) -> Figures:
        """Write what a batch takes in the channel with plain writes to a new file for each core, and sync."""
        data = os.urandom(_WRITE_BYTES)
        each = max(1, self._batch_bytes // 2 // _WRITE_BYTES)
        seconds = []
        for i in range(3):
            started = time.perf_counter()
            for part in range(2):
                with open(place / f"{i}-{part}", "wb", buffering=0) as file:
                    for _ in range(each):
                        file.write(data)
                    os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - started)
            for part in range(2):
                os.unlink(place / f"{i}-{part}")
        return {ROWS: self._kind.batch_rows / sorted(seconds)[1]}

    def _write(self, place: Path, sink: str, options: dict[str, str] | None = None) -> Figures:
        reader = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self._kind.batch_rows)
        writer = reader.load().select(*self._kind.columns()).writeStream.format(sink)
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).options(**options or {})
        return rate(writer.start(str(place / "out")), self._kind.batch_rows, _BATCHES)


def _rows(path: Path) -> int:
    """Return how many events a channel holds."""
    import spillable_stream as ss

    with ss.Channel(path, create=False) as channel:
        return channel.engine().follow().last_id
