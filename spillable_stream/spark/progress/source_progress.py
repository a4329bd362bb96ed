"""The part of a query's progress that is about one source, if that source is a channel."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from spillable_stream.names import is_name
from spillable_stream.spark.offset import Offset, OffsetJson
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.offset_report import OffsetReport

__all__ = ["SourceProgress"]


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A query's progress in one channel.

    Spark reports only the offset of the end before 4.2, and for a batch that is retried; the rest is then None.

    Args:
        end_id: everything up to this event is in completed batches.
        channel: the channel's UUID.
        path: its directory.
        group: the group, which the offset names if the stream made it for itself; None also for a name that no group
            can have.
        owner: the group's owner (`Consumer.owner`); None also without one.
        lag: the events that no batch had covered.
    """

    end_id: int
    channel: str
    path: str | None = None
    group: str | None = None
    owner: str | None = None
    lag: Lag | None = None

    @classmethod
    def parse(cls, source: Any) -> SourceProgress | None:
        """Parse a Spark ``SourceProgress``; return None if it is not about a channel, or has no batch.

        Raises:
            ValueError: the offset looks like a channel's but is malformed.
            KeyError: the latest offset is incomplete.
        """
        end = _json(source.endOffset)
        if end.keys() - {"group", "reset", "start"} != {"channel", "writeOrderId"}:
            return None
        offset = Offset.of(end)
        if offset is None:
            raise ValueError(f"{end} has the keys of a channel's offset, and is none")
        latest = OffsetReport.of(_json(source.latestOffset))
        if latest is None or latest.channel != offset.channel:
            return cls(offset.event_id, offset.channel, group=offset.group)
        return cls(
            end_id=offset.event_id,
            channel=latest.channel,
            path=latest.path,
            group=latest.group if is_name(latest.group) else None,
            owner=latest.owner,
            lag=latest.lag,
        )


def _json(text: str | None) -> OffsetJson:
    """Parse an offset; return {} for anything else, such as the "None" that pyspark puts for a missing offset."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
