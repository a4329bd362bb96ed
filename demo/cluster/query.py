"""The driver: a query that copies each flight of one channel to another one, with the host that did it.

python -m demo.cluster.query CONFIGURATION SOURCE TARGET CHECKPOINT EVENTS_PER_TRIGGER

It says "started" once the query runs. When its standard input ends it copies what is left, and ends.
"""

from __future__ import annotations

import json
import os
import select
import sys

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spillable_stream as ss

__all__ = ["COUNTED", "GROUP"]

COUNTED = pa.schema([("number", pa.int64()), ("carrier", pa.string()), ("host", pa.string())])
"""The columns of the second channel."""

GROUP = "counting"
"""The query's group."""

_OWNER_SECONDS = 60  # to wait for a driver that was killed to be known as gone
_TASKS = 2


def main(configuration: str, source: str, target: str, checkpoint: str, events_per_trigger: str) -> None:
    """Run the query from its checkpoint on, until standard input ends."""
    spark = SparkSession.builder.config(map=json.loads(configuration)).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    ss.register(spark)
    flights = (
        spark.readStream.format("spillable")
        .option("group", GROUP)
        .option("ownerTimeout", _OWNER_SECONDS)
        .option("maxEventsPerTrigger", events_per_trigger)
        .option("minPartitions", _TASKS)
        .load(source)
    )
    host = F.udf(lambda: os.uname().nodename, "string").asNondeterministic()()
    query = (
        flights.select("number", "carrier", host.alias("host"))
        .writeStream.format("spillable")
        .option("checkpointLocation", checkpoint)
        .start(target)
    )
    print("started", file=sys.stderr, flush=True)
    while not select.select([sys.stdin], [], [], 0.5)[0]:
        if (failure := query.exception()) is not None:
            raise SystemExit(f"the query failed: {failure}")
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
