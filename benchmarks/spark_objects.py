"""Spark's batch writes to and reads of an object store, beside plain uploads and range reads of the same tasks.

The store is an S3 that moto plays over the loopback interface, which takes some 100 to 200 MB/s.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import spillable_stream as ss
from benchmarks import spark_rows, spark_uploads
from benchmarks.objects import new_place, s3_place
from benchmarks.rounds import Contestant, Group, Plan
from benchmarks.spark_rows import Kind
from benchmarks.spark_session import ROWS, WARM_UP_ROUNDS, session
from spillable_stream.objects.location import Location

__all__ = ["OURS", "PLAIN", "groups", "large_sink_name", "sink_name", "source_name"]

OURS = "spillable_stream"
PLAIN = "plain objects, the same tasks and client"
_TASKS = 2
_ROUNDS = 3
_TIMES = 3  # in a round, whose figure is their median: chance moves a single one by a fifth
_FEWER = 5  # rows than elsewhere: this S3 is written in Python, and shares the machine
_MORE = f"{_FEWER} times as many rows"


def sink_name(kind: Kind) -> str:
    """Return the name of the group that writes such rows."""
    return f"spark sink in a store, {kind.name}"


def large_sink_name(kind: Kind) -> str:
    """Return the name of the group that writes such rows in batches as large as elsewhere."""
    return f"{sink_name(kind)}, {_MORE}"


def source_name(kind: Kind) -> str:
    """Return the name of the group that reads such rows."""
    return f"spark source in a store, {kind.name}"


def groups(_: Plan, directory: Path) -> Iterator[Group]:
    """Yield a group that writes and one that reads for each kind of rows."""
    with s3_place(directory) as location, session() as spark:
        spark.dataSource.register(spark_uploads.UploadSource)
        for kind in spark_rows.KINDS:
            rows = _Rows(spark, kind._replace(batch_rows=kind.batch_rows // _FEWER), location)
            title = f"Sink, in a store: {kind.title}"
            yield Group(sink_name(kind), title, "rows/s", PLAIN, rows.sinks(), _ROUNDS, WARM_UP_ROUNDS)
            sources = {OURS: rows.reader("spillable"), PLAIN: rows.reader(spark_uploads.NAME)}
            title = f"Source, in a store: {kind.title}"
            yield Group(source_name(kind), title, "rows/s", PLAIN, sources, _ROUNDS, WARM_UP_ROUNDS)
            large, title = _Rows(spark, kind, location), f"Sink, in a store, {_MORE}: {kind.title}"
            yield Group(large_sink_name(kind), title, "rows/s", PLAIN, large.sinks(), _ROUNDS, WARM_UP_ROUNDS)


class _Rows:
    """One kind of rows, which Spark makes as they are written.

    Args:
        spark: the session.
        kind: the rows.
        location: what every place begins with.
    """

    def __init__(self, spark: Any, kind: Kind, location: Location) -> None:
        self._spark = spark
        self._kind = kind
        self._location = location
        self._written: dict[str, str] = {}  # format: where

    def sinks(self) -> dict[str, Contestant]:
        """Return what writes them."""
        return {OURS: self.writer("spillable"), PLAIN: self.writer(spark_uploads.NAME)}

    def writer(self, format_name: str) -> Contestant:
        """Return what writes to a new place each time."""

        def write() -> float:
            place = str(new_place(self._location))
            made = self._spark.range(0, self._kind.batch_rows, 1, _TASKS).withColumnRenamed("id", "value")
            frame = made.select(*self._kind.columns())
            if format_name == "spillable":
                ss.Channel(place, schema=frame.schema).close()
            began = time.perf_counter()
            frame.write.format(format_name).mode("append").save(place)
            seconds = time.perf_counter() - began
            self._written[format_name] = place
            return seconds

        return self._several(write)

    def reader(self, format_name: str) -> Contestant:
        """Return what reads all that was written last."""

        def read() -> float:
            if format_name not in self._written:
                raise LookupError("no write has succeeded, so there is nothing to read")
            frame = self._spark.read.format(format_name).load(self._written[format_name])
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            return time.perf_counter() - began

        return self._several(read)

    def _several(self, once: Callable[[], float]) -> Contestant:
        return lambda _: {ROWS: self._kind.batch_rows / statistics.median(once() for _ in range(_TIMES))}
