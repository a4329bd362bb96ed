"""The demo: real flights through a channel into Spark, aggregated, into a second channel, and checked.

A producer process puts events while a Spark query starts. The channel's memory tier is smaller than
what waits meanwhile, so the channel spills to disk, and drains both tiers in order once Spark takes.
The query counts flights and sums departure delays by carrier and month, and the sink puts each
finished month into a second channel as one transaction for each micro-batch. That channel is read
back and compared with sums made straight from the CSV. Exits 1 if they differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from flights import read_flights, totals
from progress import legend, line
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillable_stream as ss

EVENTS_PER_TRIGGER = 50_000
LOOK_SECONDS = 0.5
CHANNEL: dict[str, Any] = {
    "memory_capacity": 40_000,  # less than what waits until Spark has started: the rest spills to disk
    "overflow_capacity": 400_000,
    "overflow_timeout": 1,
}
Totals = dict[str, tuple[int, int, int]]  # of each carrier, as `flights.totals` has them


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Yield a quiet local session whose Python workers are this interpreter."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("spillable demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        thread = threading.Thread(target=stop, args=(spark,))  # SIGTERM may have cut short a call of this thread
        thread.start()
        thread.join()


def stop(spark: SparkSession) -> None:
    """Stop the queries, then Spark."""
    with suppress(OSError, Py4JError):  # whoever ended the demo may have ended Java, too
        spark.sparkContext.setLogLevel("OFF")  # a task that is cut short here is no error
        for query in spark.streams.active:
            query.stop()
        spark.stop()


@contextmanager
def producer_of(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a running producer of a channel; it is ended with the block."""
    producer = subprocess.Popen([sys.executable, str(Path(__file__).parent / "producer.py"), str(path)])
    try:
        yield producer
    finally:
        producer.terminate()
        producer.wait()


def by_carrier_and_month(events: DataFrame) -> DataFrame:
    """Return counts and sums of the departure delay for each carrier and month that is over."""
    flight = F.from_json(F.col("body").cast("string"), "time_hour timestamp, carrier string, dep_delay string")
    flights = events.select(flight.alias("f")).select("f.*")
    month = F.date_trunc("month", "time_hour")
    return (
        flights.withColumn("month_start", month)
        .withWatermark("month_start", "1 day")
        .groupBy(F.window("month_start", "1 day"), "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count(F.expr("try_cast(dep_delay as double)")).alias("delays"),
            F.sum(F.expr("try_cast(dep_delay as double)")).alias("delay_minutes"),
        )
        .select(F.col("window.start").alias("month"), "carrier", "flights", "delays", "delay_minutes")
    )


def start_query(spark: SparkSession, flights: Path, months: Path, checkpoint: Path) -> Any:
    """Start the query that takes from the first channel and puts into the second."""
    source = spark.readStream.format("spillable").option("maxEventsPerTrigger", EVENTS_PER_TRIGGER)
    sink = by_carrier_and_month(source.load(str(flights))).writeStream.format("spillable")
    sink = sink.option("checkpointLocation", str(checkpoint))
    return sink.start(str(months))


def show_progress(query: Any, channel: ss.Channel, producer: subprocess.Popen[bytes]) -> ss.ChannelStats:
    """Print how the channel fills and drains, until all of it is through; return the last statistics."""
    started = time.monotonic()
    print(legend(channel.stats()))
    shown = None
    while True:
        status = producer.poll()
        stats = channel.stats()
        if (stats.last_id, stats.channel_size) != shown:
            print(line(time.monotonic() - started, stats), flush=True)
            shown = (stats.last_id, stats.channel_size)
        if query.exception() is not None:
            raise SystemExit(f"the query failed: {query.exception()}")
        if status not in (None, 0):
            raise SystemExit(f"the producer failed with exit status {status}")
        if status == 0 and stats.channel_size == 0:
            query.processAllAvailable()  # the last word closes the last month
            return stats
        time.sleep(LOOK_SECONDS)


def table(spark: SparkSession, path: Path) -> Totals:
    """Read the second channel back, print it and return the sums for each carrier."""
    months = spark.read.format("spillable").load(str(path))
    sums = months.groupBy("carrier").agg(F.sum("flights"), F.sum("delays"), F.sum("delay_minutes")).collect()
    found = {r[0]: (int(r[1]), int(r[2]), int(r[3])) for r in sums}
    print(f"\n  carrier   flights   mean departure delay       (from {months.count()} rows of the second channel)")
    for carrier, (flights, delays, minutes) in sorted(found.items(), key=lambda item: -item[1][0]):
        print(f"  {carrier:<7} {flights:>9,}   {minutes / delays:>8.2f} min")
    return found


def verdict(stats: ss.ChannelStats, expected: Totals, found: Totals) -> bool:
    """Print whether all went through and the sums are right."""
    flights = sum(flights for flights, _, _ in expected.values())
    events = flights + 1  # and the last word
    print(
        f"\n{stats.last_id:,} of {events:,} events put, {flights:,} flights and the last word; "
        f"{stats.spilled_transactions} transactions spilled to disk; "
        f"{stats.memory.events} events left in memory, {stats.disk.events} on disk, "
        f"{sum(last - first + 1 for first, last in stats.lost)} lost"
    )
    if stats.last_id != events or stats.lost or found != expected:
        print(f"WRONG: the CSV says {expected}, the channel says {found}")
        return False
    print("OK: every carrier's flights and delays equal a direct computation on the CSV")
    return True


def main() -> int:
    """Run the demo in a temporary directory and return the exit status."""
    rows = read_flights()
    with tempfile.TemporaryDirectory(prefix="spillable-demo-") as directory:
        flights, months, checkpoint = (Path(directory) / name for name in ("flights", "months", "checkpoint"))
        print(f"starting Spark; {len(rows):,} flights will be put into {flights}", flush=True)
        with ss.Channel(flights, **CHANNEL) as channel, spark_session() as spark:
            query = start_query(spark, flights, months, checkpoint)
            with producer_of(flights) as producer:
                stats = show_progress(query, channel, producer)
            found = table(spark, months)
    return 0 if verdict(stats, totals(rows), found) else 1


if __name__ == "__main__":
    with ss.exit_on_sigterm():
        status = main()
    sys.exit(status)
