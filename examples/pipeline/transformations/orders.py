"""From the channel `orders` to a streaming table, and its large orders to the channel `large`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
home = spark.conf.get("spark.example.home")


@dp.table
def orders() -> DataFrame:
    """A streaming table: every order of the channel, once."""
    events = spark.readStream.format("spillable").option("group", "pipeline").load(f"{home}/orders")
    return events.selectExpr("headers['country'] AS country", "CAST(CAST(body AS STRING) AS INT) AS amount")


dp.create_sink("large", "spillable", {"path": f"{home}/large"})


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    """A flow into the channel `large`, which its first run makes."""
    return spark.readStream.table("orders").where("amount >= 90")
