"""A Spark driver that moves events from one channel to another until it is killed, or until it is done.

python -m tests.spark.driver SOURCE TARGET CHECKPOINT, then a line on stdin: "forever" or "drain"
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.versions import drain


def main(source: str, target: str, checkpoint: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    until = sys.stdin.readline().strip()  # so that the next driver can start up while another works
    events = (
        spark.readStream.format("spillable")
        .option("maxEventsPerTrigger", 200 if until == "forever" else 5_000)
        .load(source)
    )
    writer = (
        events.withColumn("batch_partition", F.spark_partition_id())
        .writeStream.format("spillable")
        .option("checkpointLocation", checkpoint)
        .option("minimumRequiredSpace", 0)
        .option("maxInlineBytes", 4096)
    )
    if until == "drain":
        drain(lambda: writer.trigger(availableNow=True).start(target))
        print("DONE", flush=True)
    else:
        query = writer.start(target)
        print("STARTED", flush=True)
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
