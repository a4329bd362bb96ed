"""A durable, transactional, spillable event channel for Python and Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spillable_stream.channel.arrow_schema import convert_spark_schemas
from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event import Event
from spillable_stream.channel.stats import ChannelStats, GroupStats
from spillable_stream.channel.transaction import PutTransaction, TakeTransaction
from spillable_stream.errors import *  # noqa: F403
from spillable_stream.errors import __all__ as _errors

if TYPE_CHECKING:
    from spillable_stream.producer.async_producer import AsyncProducer
    from spillable_stream.producer.logging_handler import ProducerHandler
    from spillable_stream.producer.producer import Producer
    from spillable_stream.producer.result import Attempt, Result
    from spillable_stream.producer.stats import ProducerStats
    from spillable_stream.producer.target import Target

__version__ = "0.1.0"

__all__ = [
    "AsyncProducer",
    "Attempt",
    "Channel",
    "ChannelStats",
    "Event",
    "GroupStats",
    "Producer",
    "ProducerHandler",
    "ProducerStats",
    "PutTransaction",
    "Result",
    "TakeTransaction",
    "Target",
    "register",
    *_errors,
]


# Imported when they are first used: a program that only opens a channel does not pay for them.
_ROOMS = {
    "AsyncProducer": "async_producer",
    "Attempt": "result",
    "Producer": "producer",
    "ProducerHandler": "logging_handler",
    "ProducerStats": "stats",
    "Result": "result",
    "Target": "target",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"spillable_stream.producer.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def _spark_schema(schema: Any) -> Any:
    from spillable_stream.spark.schema import arrow_schema

    return arrow_schema(schema)


convert_spark_schemas(_spark_schema)


def register(spark: Any) -> None:
    """Make ``format("spillable")`` known to a Spark session that does not find it by itself.

    Args:
        spark: the ``SparkSession``, classic or Connect.

    Raises:
        PythonMismatchError: the Python that Spark runs can't import this package; the message says what to set.
    """
    from spillable_stream.spark.registration import register

    register(spark)
