"""The demo: real flights through a channel into Spark, aggregated, into a second channel, and checked.

A producer process puts events while a Spark query already runs. The query counts flights and sums
departure delays by carrier and month, and the sink puts each finished month into a second channel
as one transaction for each micro-batch. That channel is read back and compared with sums made
straight from the CSV. Exits 1 if they differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from flights import read_flights, totals
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillable_stream as ss

EVENTS_PER_TRIGGER = 50_000


def start_spark() -> SparkSession:
    """Return a quiet local session whose Python workers are this interpreter."""
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
    return spark


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


def show_progress(query: Any, channel: ss.Channel, producer: subprocess.Popen[bytes], expected: int) -> float:
    """Print once a second what was put and taken until all of it is through; return how long it took."""
    started = time.monotonic()
    rows: dict[int, int] = {}  # of each micro-batch
    while True:
        stats = channel.stats()
        rows.update((report.batchId, report.numInputRows) for report in query.recentProgress)  # the last hundred
        done = sum(rows.values())
        print(
            f"  {time.monotonic() - started:5.1f} s   put {stats.last_id:>7,}   taken by Spark {done:>7,}", flush=True
        )
        if query.exception() is not None:
            raise SystemExit(f"the query failed: {query.exception()}")
        if producer.poll() not in (None, 0):
            raise SystemExit(f"the producer failed with exit status {producer.returncode}")
        if producer.poll() == 0 and done >= expected + 1:
            query.processAllAvailable()  # the last word closes the last month
            return time.monotonic() - started
        time.sleep(1)


def table(spark: SparkSession, path: Path) -> dict[str, tuple[int, int, int]]:
    """Read the second channel back, print it and return the sums for each carrier."""
    months = spark.read.format("spillable").load(str(path))
    sums = months.groupBy("carrier").agg(F.sum("flights"), F.sum("delays"), F.sum("delay_minutes")).collect()
    found = {r[0]: (int(r[1]), int(r[2]), int(r[3])) for r in sums}
    print(f"\n  carrier   flights   mean departure delay       (from {months.count()} rows of the second channel)")
    for carrier, (flights, delays, minutes) in sorted(found.items(), key=lambda item: -item[1][0]):
        print(f"  {carrier:<7} {flights:>9,}   {minutes / delays:>8.2f} min")
    return found


def main() -> int:
    """Run the demo in a temporary directory and return the exit status."""
    rows = read_flights()
    expected = totals(rows)
    with tempfile.TemporaryDirectory(prefix="spillable-demo-") as directory:
        flights, months = Path(directory) / "flights", Path(directory) / "months"
        print(f"starting Spark; {len(rows):,} flights will be put into {flights}", flush=True)
        spark = start_spark()
        with ss.Channel(flights, minimum_required_space=64 << 20) as channel:
            source = spark.readStream.format("spillable").option("maxEventsPerTrigger", EVENTS_PER_TRIGGER)
            query = (
                by_carrier_and_month(source.load(str(flights)))
                .writeStream.format("spillable")
                .option("checkpointLocation", str(Path(directory) / "checkpoint"))
                .option("minimumRequiredSpace", 64 << 20)
                .start(str(months))
            )
            producer = subprocess.Popen([sys.executable, str(Path(__file__).parent / "producer.py"), str(flights)])
            try:
                took = show_progress(query, channel, producer, len(rows))
            finally:
                producer.kill()
                query.stop()
        found = table(spark, months)
        spark.stop()
    print(f"\n{len(rows) + 1:,} events, put and aggregated in {took:.1f} s: {len(rows) / took:,.0f} events/s")
    if found != expected:
        print(f"WRONG: the CSV says {expected}, the channel says {found}")
        return 1
    print("OK: every carrier's flights and delays equal a direct computation on the CSV")
    return 0


if __name__ == "__main__":
    sys.exit(main())
