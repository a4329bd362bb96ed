"""A Spark driver, or a Spark Connect client, that does one job after the other.

python cluster_driver.py CONFIGURATION, then on stdin one job a line: ["NAME", {ARGUMENT: VALUE, …}]. It answers each on
stdout with ["done", RESULT] or ["failed", [TEXT OF THE ERROR, WHAT `explain` SAYS OF IT]]. It ends when stdin does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import spillable_stream as ss
from spillable_stream.spark import explain, listener

TASKS = 4
_LONGEST_SECONDS = 120


def executor() -> Column:
    """Return a column that says which executor computes it."""
    return F.udf(_executor, "string").asNondeterministic()()


def _executor() -> str:
    """Return "HOST EXECUTOR" of the task: from the command line of the JVM that this Python worker descends from."""
    for command in _ancestors():
        if b"--executor-id" in command:
            return f"{os.uname().nodename} {command[command.index(b'--executor-id') + 1].decode()}"
    return f"{os.uname().nodename} driver"


def _ancestors() -> Iterator[list[bytes]]:
    """Yield the command lines of the processes above this one."""
    pid = os.getppid()
    while pid > 1:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            yield file.read().split(b"\0")
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])


def register(spark: SparkSession) -> str:
    """Register the format, and return the kind of session."""
    ss.register(spark)
    return type(spark).__module__


def write(spark: SparkSession, path: str, rows: int, body_bytes: int) -> None:
    """Append numbered rows as one batch write, each with the executor of its task."""
    frame = spark.range(0, rows, 1, TASKS).select(
        "id", executor().alias("writer"), F.expr(f"repeat('x', {body_bytes})").alias("body")
    )
    frame.write.format("spillable").options(**of(path)).mode("append").save(path)


def of(path: str) -> dict[str, str]:
    """Return the options of a channel at a path: a test's disk may be nearly full, and a store has none."""
    return {} if "://" in path else {"minimumRequiredSpace": "0"}


def read(spark: SparkSession, path: str, **options: str) -> dict[str, Any]:
    """Read a channel, and return the rows' numbers and the executors that wrote, moved and read them."""
    frame = spark.read.format("spillable").option("minPartitions", TASKS).options(**options).load(path)
    who = [name for name in ("writer", "mover") if name in frame.columns]
    rows = frame.select("id", *who, executor().alias("reader")).collect()
    return {"ids": [r.id for r in rows], **{n: sorted({r[n] for r in rows}) for n in [*who, "reader"]}}


def stream(spark: SparkSession, source: str, target: str, checkpoint: str, **options: str) -> int:
    """Move what is in a channel, read with some options, to another one, and return in how many micro-batches."""
    query = (
        spark.readStream.format("spillable")
        .option("minPartitions", TASKS)
        .option("ownerTimeout", 60)
        .options(**options)
        .load(source)
        .withColumn("mover", executor())
        .writeStream.format("spillable")
        .option("checkpointLocation", checkpoint)
        .option("mergeSchema", True)
        .options(**of(target))
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    return sum(1 for report in query.recentProgress if report.numInputRows)


def stream_heard(spark: SparkSession, **places: str) -> list[list[Any]]:
    """Move what is in a channel to another one while a listener hears of it, and return what that reports."""
    watcher = listener(spark)
    try:
        stream(spark, **places)
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not (done := [report for report in watcher.reports() if not report.active]):
            assert time.monotonic() < deadline, "the listener has not heard of the query's end"
            time.sleep(0.05)
        return [[report.group, report.last_id, report.lag_events] for report in done]
    finally:
        watcher.close()


JOBS: dict[str, Callable[..., Any]] = {
    "register": register,
    "write": write,
    "read": read,
    "stream": stream,
    "stream_heard": stream_heard,
}


def main(configuration: dict[str, str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    spark = SparkSession.builder.config(map=configuration).getOrCreate()
    print(json.dumps(["done", None]), file=answers, flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = ["done", JOBS[name](spark, **arguments)]
        except PySparkException as e:
            answer = ["failed", [str(e), explain(e)]]
        print(json.dumps(answer), file=answers, flush=True)
    with contextlib.suppress(PySparkException):
        spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
