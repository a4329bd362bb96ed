"""A Spark driver that runs pipelines until it is killed, or until each has moved all there is.

python -m tests.lab.spark_driver MASTER [KEY=VALUE...]

It says READY, so that one driver can start up while another works, and takes orders from stdin. A list of the
pipelines' directories starts their queries: STARTED. A query that fails is started again, and why it failed is noted in
the pipeline's ``failures``. "drain" lets them move what there is: DONE; what a batch read of the targets finds is then
in ``found``. When stdin ends the driver does.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import spillable_stream as ss
from tests.lab.spark_points import (
    SEVERAL,
    KillDataSource,
    channels_of,
    is_armed,
    is_stored,
    kind_of,
    place_of,
    place_to_read,
    step,
)
from tests.support.spark.sessions import local_files
from tests.support.spark.versions import ADMISSION_CONTROL

WINDOW_SECONDS = 20
DELAY_SECONDS = 10
BATCH_EVENTS = 100
_WATCH_SECONDS = 0.0005
_PAUSE_SECONDS = 0.5  # one that fails at once leaves the others some time
_DELIVERY_SECONDS = 60.0
_MOST_FAILURES = 5  # of a query when nothing kills it any more


def mapped(events: DataFrame) -> DataFrame:
    """Return a row for each event: its number, its size, its text, and the task that created it."""
    return events.select(_number(), F.length("body").alias("size"), "body", F.spark_partition_id().alias("task"))


def counted(events: DataFrame) -> DataFrame:
    """Return how many events each key has in each window, and the sum of their numbers, once the watermark passed."""
    window = F.window("time", f"{WINDOW_SECONDS} seconds")
    return (
        events.select(_number(), F.timestamp_seconds(_header("time").cast("long")).alias("time"), _header("key"))
        .withWatermark("time", f"{DELAY_SECONDS} seconds")
        .groupBy(window, "key")
        .agg(F.count("*").alias("events"), F.sum("number").alias("total"))
        .select(F.unix_timestamp("window.start").alias("start"), "key", "events", "total")
    )


def unchanged(events: DataFrame) -> DataFrame:
    """Return the events."""
    return events


def _number() -> Column:
    return F.substring(F.col("body").cast("string"), 1, 8).cast("int").alias("number")


def _header(name: str) -> Column:
    return F.col("headers")[name].alias(name)


KINDS = {
    "map": (mapped, ["number", "size", "task"], 4096),  # staged in the message or in a segment, by the size
    "count": (counted, ["start", "key", "events", "total"], 0),  # always in a segment
    "delay": (mapped, ["number", "size", "task"], 0),  # always in staged side files
    "gather": (mapped, ["number", "size", "task"], 4096),  # reads a set
    "shards": (mapped, ["number", "size", "task"], 4096),
    "flow": (unchanged, ["number", "size", "task"], 4096),  # its channels get events
}

_FLOW = """
a1.sources = r1
a1.channels = c0 c1 c2
a1.sources.r1.type = seq
a1.sources.r1.channels = c0 c1 c2
a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = key
a1.sources.r1.selector.mapping.1 = c1
a1.sources.r1.selector.mapping.2 = c2
a1.sources.r1.selector.default = c0
"""


def start(spark: SparkSession, pipeline: Path, drain: bool) -> Any:
    """Start a pipeline's query."""
    make, _, inline_bytes = KINDS[kind_of(pipeline)]
    events = (
        spark.readStream.format("spillable_kill")
        .option("maxEventsPerTrigger", BATCH_EVENTS * (20 if drain else 1))
        .option("minPartitions", 3)
        .option("ownerTimeout", 60)
        .load(place_to_read(pipeline, "source"))
    )
    writer = (
        make(events)
        .writeStream.format("spillable_kill")
        .option("checkpointLocation", str(pipeline / "checkpoint"))
        .option("maxInlineBytes", inline_bytes)
    )
    if drain:
        writer = writer.trigger(availableNow=True)
    if kind_of(pipeline) == "flow":
        return writer.options(flow=_flow_file(pipeline), agent="a1", source="r1").start()
    if kind_of(pipeline) == "shards":
        writer = writer.options(shards=SEVERAL["shards", "target"], shardBy="number")
    return (
        writer.option(*(("commitInterval", 0) if is_stored(pipeline) else ("minimumRequiredSpace", 0)))
        .option("checkpointInterval", 1000)
        .option("deliverAfter", "2s" if kind_of(pipeline) == "delay" else "0s")
        .start(place_of(pipeline, "target"))
    )


def _flow_file(pipeline: Path) -> str:
    """Write the configuration of a flow into the pipeline's channels, and return its path."""
    channels = "".join(
        f"a1.channels.c{i}.type = file\na1.channels.c{i}.checkpointDir = {place}\n"
        f"a1.channels.c{i}.dataDirs = {place}-data\n"
        for i, place in enumerate(channels_of(pipeline, "target"))
    )
    file = pipeline / "flume.conf"
    file.write_text(_FLOW + channels)
    return str(file)


def found(spark: SparkSession, pipeline: Path) -> list[list[Any]]:
    """Return the rows that a batch read of a pipeline's target has."""
    rows = spark.read.format("spillable").load(place_to_read(pipeline, "target"))
    if kind_of(pipeline) == "flow":
        rows = mapped(rows)
    return [list(row) for row in rows.select(*KINDS[kind_of(pipeline)][1]).collect()]


def keep_running(spark: SparkSession, pipelines: list[Path], drain: threading.Event) -> None:
    """Run the pipelines' queries, from the beginning again whenever one fails, till all is drained."""
    draining = drain.is_set()
    running: dict[Path, Any] = dict.fromkeys(pipelines)
    failures: Counter[Path] = Counter()
    done: dict[Path, set[str]] = {}  # the batches that were done when a run ended
    while running:
        if drain.is_set() and not draining:
            draining = True
            failures.clear()
            for pipeline, query in running.items():
                running[pipeline] = query and query.stop()
        for pipeline in list(running):
            try:
                running[pipeline] = running[pipeline] or start(spark, pipeline, draining)
                if running[pipeline].awaitTermination(0.1):
                    now = _names(pipeline / "checkpoint" / "commits")
                    if ADMISSION_CONTROL or done.get(pipeline) == now:
                        del running[pipeline]
                    else:  # such a run ends after a batch
                        done[pipeline], running[pipeline] = now, None
            except PySparkException as e:
                running[pipeline] = None
                failures[pipeline] += "connect back" not in str(e)  # on a busy machine a worker may start too slowly
                with (pipeline / "failures").open("a") as file:
                    print(json.dumps(str(e)), file=file, flush=True)
                if draining and failures[pipeline] >= _MOST_FAILURES:
                    del running[pipeline]
                time.sleep(_PAUSE_SECONDS)


def watch(pipelines: list[Path]) -> None:
    """Pass the steps "offsets" and "commits": before is a file that Spark writes, after is one that has its name."""
    known: dict[Path, set[str]] = {}
    while True:
        armed = [(p, name) for p in pipelines for name in ("offsets", "commits") if is_armed(p, name)]
        for pipeline, name in armed:
            log = pipeline / "checkpoint" / name
            names = _names(log)
            for new in names - known.get(log, names):
                if new.isdigit() or new.endswith(".tmp"):
                    step(pipeline, name, "after" if new.isdigit() else "before")
            known[log] = names
        time.sleep(_WATCH_SECONDS if armed else 0.05)


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


def let_be_delivered(target: str) -> None:
    """Wait until no event of a channel is delayed any more."""
    with ss.Channel(target, create=False) as channel:
        if not channel.engine().wait_for(lambda state: not state.delays.events, _DELIVERY_SECONDS):
            raise AssertionError(f"{target} delivers nothing: {channel.stats().delayed}")


def listen(orders: queue.Queue[list[Path]], drain: threading.Event) -> None:
    """Pass on what is ordered, till whoever orders is gone."""
    for line in sys.stdin:
        if line == "drain\n":
            drain.set()
        else:
            orders.put([Path(p) for p in json.loads(line)])
    os._exit(1)


def main(master: str, *settings: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.checkpointFileManagerClass", local_files())
    )
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(KillDataSource)
    print("READY", flush=True)
    pipelines: list[Path] = []
    orders: queue.Queue[list[Path]] = queue.Queue()
    drain = threading.Event()
    threading.Thread(target=watch, args=(pipelines,), daemon=True).start()
    threading.Thread(target=listen, args=(orders, drain), daemon=True).start()
    while True:
        pipelines[:] = orders.get()
        print("STARTED", flush=True)
        keep_running(spark, list(pipelines), drain)
        for pipeline in pipelines:
            for target in channels_of(pipeline, "target"):
                let_be_delivered(target)
            (pipeline / "found").write_text(json.dumps(found(spark, pipeline)))
        drain.clear()
        pipelines.clear()  # their directories may go now
        print("DONE", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # a query may wait for what never comes
