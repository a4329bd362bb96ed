"""A listener's events, as Spark sends them."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.listener import QueryProgressEvent

import spillable_stream as ss
import spillable_stream.spark
from spillable_stream.spark.progress.query_listener import QueryListener


def tell(listener: QueryListener, event: dict[str, Any]) -> None:
    listener.onQueryProgress(QueryProgressEvent.fromJson(event))


def end_offset(event: dict[str, Any]) -> dict[str, Any]:
    return event["progress"]["sources"][0]["endOffset"]


def group_state(channel: ss.Channel, group: str = "default") -> tuple[int, int]:
    """Return a group's position and how many events are in its prepared takes."""
    stats = channel.stats().groups[group]
    return stats.position, stats.in_flight
