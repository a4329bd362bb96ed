"""The Spark source beside Spark's own Parquet file stream, on the same rows."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import spillable_stream as ss

ROWS = 8_000_000
_FILES = 16
_BATCHES = 8
PEER = "Spark's Parquet file stream"


@contextmanager
def session() -> Iterator[Any]:
    """Yield a quiet local Spark session."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


def _table(part: int) -> pa.Table:
    """Return one part of the rows: a number and a text of 100 characters that hardly compresses."""
    rows = ROWS // _FILES
    ids = range(part * rows, (part + 1) * rows)
    letters = random.Random(part).randbytes(50 * rows).hex()
    texts = pa.array([letters[i : i + 100] for i in range(0, len(letters), 100)])
    return pa.table({"id": pa.array(ids, pa.int64()), "text": texts})


_parts: list[pa.Table] = []


def parts() -> list[pa.Table]:
    """Return the rows in parts, made once."""
    if not _parts:
        _parts.extend(_table(i) for i in range(_FILES))
    return _parts


def _drain(stream: Any, directory: Path) -> float:
    """Run a stream to its end into nothing and return rows a second, without the first batch.

    The first one starts the query: for a Python source Spark starts Python, which takes a second or two.
    """
    query = stream.writeStream.format("noop").option("checkpointLocation", str(directory / "checkpoint"))
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [(r.numInputRows, r.durationMs["triggerExecution"]) for r in query.recentProgress if r.numInputRows]
    if sum(rows for rows, _ in batches) != ROWS or len(batches) != _BATCHES:
        raise AssertionError(f"{ROWS:,} rows in {_BATCHES} batches went in; {batches} came through")
    return sum(rows for rows, _ in batches[1:]) / sum(ms for _, ms in batches[1:]) * 1000


def contestants(spark: Any) -> dict[str, Callable[[Path], float]]:
    """Return the contestants; each writes the rows first, which is not timed."""

    def parquet(directory: Path) -> float:
        (directory / "data").mkdir()
        for i, part in enumerate(parts()):
            pq.write_table(part, directory / "data" / f"{i:03d}.parquet")
        reader = spark.readStream.schema("id BIGINT, text STRING").format("parquet")
        reader = reader.option("maxFilesPerTrigger", _FILES // _BATCHES)
        return _drain(reader.load(str(directory / "data")), directory)

    def spillable(directory: Path) -> float:
        schema = parts()[0].schema
        with ss.Channel(directory / "c", schema=schema, minimum_required_space=0, transaction_capacity=ROWS) as channel:
            for part in parts():
                with channel.put_transaction() as tx:
                    tx.put_batch(part)
        reader = spark.readStream.format("spillable").option("maxEventsPerTrigger", ROWS // _BATCHES)
        return _drain(reader.load(str(directory / "c")), directory)

    return {PEER: parquet, "spillable_stream": spillable}
