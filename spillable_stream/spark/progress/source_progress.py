"""What the progress of a query says of one of its sources, if that is a channel."""

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
    """How far a query is in one source.

    Args:
        end_id: everything up to this event is in batches that are done.
        channel: the channel's UUID.
        path: its directory; None where Spark does not say it (before 4.2, and of a batch that is tried again).
        group: the group; None likewise, and where none can have that name.
        owner: who owned the group (`Consumer.owner`); None where Spark does not say it.
        lag: what no batch had covered then; None where Spark does not say it.
    """

    end_id: int
    channel: str
    path: str | None = None
    group: str | None = None
    owner: str | None = None
    lag: Lag | None = None

    @classmethod
    def parse(cls, source: Any) -> SourceProgress | None:
        """Return what a Spark ``SourceProgress`` says, or None if it is no channel's, or of no batch."""
        end = _json(source.endOffset)
        if end.keys() - {"start"} != {"channel", "writeOrderId"}:
            return None
        offset = Offset.of(end)
        if offset is None:
            raise ValueError(f"{end} has the keys of a channel's offset, and is none")
        latest = OffsetReport.of(_json(source.latestOffset))
        if latest is None or latest.channel != offset.channel:
            return cls(offset.event_id, offset.channel)
        return cls(
            end_id=offset.event_id,
            channel=latest.channel,
            path=latest.path,
            group=latest.group if is_name(latest.group) else None,
            owner=latest.owner,
            lag=latest.lag,
        )


def _json(text: str | None) -> OffsetJson:
    """Return an offset; an empty one of what is none, such as the "None" that pyspark makes of a missing one."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
