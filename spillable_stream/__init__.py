"""A durable, transactional, spillable event channel for Python and Spark."""

from __future__ import annotations

from typing import Any

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event import Event
from spillable_stream.channel.stats import ChannelStats, GroupStats
from spillable_stream.channel.transaction import PutTransaction, TakeTransaction
from spillable_stream.errors import *  # noqa: F403
from spillable_stream.errors import __all__ as _errors

__version__ = "0.1.0"

__all__ = [
    "Channel",
    "ChannelStats",
    "Event",
    "GroupStats",
    "PutTransaction",
    "TakeTransaction",
    "register",
    *_errors,
]


def register(spark: Any) -> None:
    """Make ``format("spillable")`` known to a Spark session that does not find it by itself.

    Args:
        spark: the ``SparkSession``, classic or Connect.
    """
    from pyspark.errors import PySparkException

    from spillable_stream.spark.datasource import SpillableDataSource

    try:
        spark.dataSource.register(SpillableDataSource)
    except PySparkException as e:  # Spark 4.0 refuses what it has found by itself
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(e.getErrorClass() if hasattr(e, "getErrorClass") else e):
            raise
