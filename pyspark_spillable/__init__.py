"""Lets Spark find `format("spillable")` by itself: it looks for `DefaultSource` in `pyspark_*` packages."""

from spillable_stream.spark.datasource import SpillableDataSource as DefaultSource

__all__ = ["DefaultSource"]
