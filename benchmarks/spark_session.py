"""A Spark session to measure in, and what is read off its queries."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

__all__ = ["WARM_UP_BATCHES", "cpu_seconds", "rate", "session"]

# A query's first batches start Python's workers and compile code.
WARM_UP_BATCHES = 2
_LONGEST_SECONDS = 300


@contextmanager
def session() -> Iterator[Any]:
    """Yield a quiet local Spark session of two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("FATAL")  # stopping a query in the middle of a batch is no error here
    try:
        yield spark
    finally:
        spark.stop()


def cpu_seconds() -> float:
    """Return the CPU time that this process's children have had: the JVM and Python's workers."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def rate(query: Any, batch_rows: int, batches: int) -> dict[str, float]:
    """Let a query run for some batches, stop it, and return what the warm ones reached.

    Args:
        query: the query, just started.
        batch_rows: how many rows every batch must have.
        batches: after how many batches to stop it.

    Returns:
        ``rows_per_second`` of the batches' own durations, and ``cpu_ns_per_row``.
    """
    before = None
    give_up = time.monotonic() + _LONGEST_SECONDS
    try:
        while len(done := [r for r in query.recentProgress if r.numInputRows]) < batches:
            if before is None and len(done) >= WARM_UP_BATCHES:
                before = (len(done), cpu_seconds())
            if query.exception() is not None:
                raise query.exception()
            if time.monotonic() > give_up or not query.isActive:
                raise AssertionError(f"{len(done)} of {batches} batches came through")
            time.sleep(0.02)
        after = cpu_seconds()
    finally:
        query.stop()
    if any(r.numInputRows != batch_rows for r in done):
        raise AssertionError(f"batches of {[r.numInputRows for r in done]} rows came through, not of {batch_rows}")
    warm = done[WARM_UP_BATCHES:batches]
    milliseconds = sum(r.durationMs["triggerExecution"] for r in warm)
    if before is None:
        raise AssertionError("the query ended before it was warm")
    return {
        "rows_per_second": len(warm) * batch_rows / milliseconds * 1000,
        "cpu_ns_per_row": (after - before[1]) * 1e9 / ((len(done) - before[0]) * batch_rows),
    }
