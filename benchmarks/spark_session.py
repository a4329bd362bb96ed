"""A Spark session to measure in, and what is read off its queries."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from benchmarks.rounds import Figures

__all__ = [
    "BY_CPU",
    "ROUNDS",
    "ROWS",
    "WARM_UP_BATCHES",
    "WARM_UP_ROUNDS",
    "cpu_seconds",
    "rate",
    "session",
    "stop",
    "wait",
]

ROWS, BY_CPU = "rows", "by CPU second"  # the figures of `rate`

ROUNDS = 3  # at most: a round takes a minute

# In its first four rounds of a sink the JVM compiled for 39, 11, 6 and 5 s, and rates were level from the third on.
WARM_UP_ROUNDS = 2

# A query's first batches start Python's workers and compile code.
WARM_UP_BATCHES = 2
_LONGEST_SECONDS = 300
_LONGEST_TASK_SECONDS = 30
_POLL_SECONDS = 0.02


@contextmanager
def session() -> Iterator[Any]:
    """Yield a quiet local Spark session of two cores, in a JVM of its own.

    A JVM gives its workers the environment that it was started with, and knows nothing of variables that are set later,
    such as those of a store. Nor should a part find compiled what an earlier one has used.

    Raises:
        RuntimeError: this process has a session.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise RuntimeError("this process has a Spark session: stop it, or measure in another process")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    _end_jvm()
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
        _end_jvm()


def _end_jvm() -> None:
    """End the JVM of this process, if it has one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # the next session starts another
    gateway.shutdown()
    gateway.proc.communicate()  # it ends with its input


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


def wait(query: Any, done: Callable[[], bool]) -> None:
    """Wait for something that a query brings about.

    Args:
        query: the query; its failure is raised.
        done: whether it has come.
    """
    give_up = time.monotonic() + _LONGEST_SECONDS
    while not done():
        if query.exception() is not None:
            raise query.exception()
        if time.monotonic() > give_up or not query.isActive:
            raise AssertionError("the rows did not all come through")
        time.sleep(_POLL_SECONDS)


def stop(query: Any) -> None:
    """Stop a query, and wait for its tasks, which would run beside what comes next."""
    query.stop()
    tracker = query._jsq.sparkSession().sparkContext().statusTracker()
    give_up = time.monotonic() + _LONGEST_TASK_SECONDS
    while any(e.numRunningTasks() for e in tracker.getExecutorInfos()) and time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)


def rate(query: Any, batch_rows: int, batches: int) -> Figures:
    """Let a query run for some batches, stop it, and return what the warm ones reached.

    Args:
        query: the query, just started.
        batch_rows: how many rows every batch must have.
        batches: after how many batches to stop it.

    Returns:
        Rows a second of the batches' own durations, and rows by second of CPU time.
    """

    def done() -> list[Any]:
        return [r for r in query.recentProgress if r.numInputRows]

    try:
        wait(query, lambda: len(done()) >= WARM_UP_BATCHES)
        before, began = len(done()), cpu_seconds()
        wait(query, lambda: len(done()) >= batches)
        found, used = done(), cpu_seconds() - began
    finally:
        stop(query)
    if any(r.numInputRows != batch_rows for r in found):
        raise AssertionError(f"batches of {[r.numInputRows for r in found]} rows came through, not of {batch_rows}")
    warm = found[WARM_UP_BATCHES:batches]
    milliseconds = sum(r.durationMs["triggerExecution"] for r in warm)
    return {
        ROWS: len(warm) * batch_rows / milliseconds * 1000,
        BY_CPU: (len(found) - before) * batch_rows / used,
    }
