"""The parts of a query's progress that are about one source, if that source is a channel, or a set of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from spillable_stream.names import is_name
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.offset_report import OffsetReport
from spillable_stream.spark.source.offset import Offset, OffsetJson
from spillable_stream.spark.source.set_offset import MemberOffset, SetOffset

__all__ = ["SourceProgress"]


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A query's progress in one channel.

    Spark reports only the offset of the end before 4.2, and for a batch that is retried; the rest is then None.

    Args:
        end_id: everything up to this event is in completed batches.
        channel: the channel's UUID.
        path: its directory.
        group: the group, which the offset names if the stream created it for itself; None also for a name that no group
            can have.
        owner: the group's owner (`Consumer.owner`); None also without one.
        lag: the events that no batch had covered.
        share: which part of the source's rows are this channel's, by their IDs; all but for a set of channels.
        is_before_4_2: whether Spark reports an offset where later ones report what the source knows.
    """

    end_id: int
    channel: str
    path: str | None = None
    group: str | None = None
    owner: str | None = None
    lag: Lag | None = None
    share: float = 1.0
    is_before_4_2: bool = False

    @classmethod
    def parse(cls, source: Any) -> list[SourceProgress]:
        """Parse a Spark ``SourceProgress``; nothing is in it if it is not about channels, or has no batch.

        Raises:
            ValueError: the offset looks like a channel's but is malformed.
            KeyError: the latest offset is incomplete.
        """
        end, latest = _json(source.endOffset), _json(source.latestOffset)
        if end.keys() != {"channels"}:
            found = cls._of_channel(end, latest)
            return [] if found is None else [found]
        ends, reports = SetOffset.parse(end, "a set").offsets, latest.get("channels", {})
        begins = SetOffset.parse(_json(source.startOffset) or {"channels": {}}, "a set").offsets
        counts = {uuid: _count(begins.get(uuid), at) for uuid, at in ends.items()}
        total = sum(counts.values())
        found_in = {uuid: cls._of_channel(at.offset, reports.get(uuid, {})) for uuid, at in ends.items()}
        return [
            replace(each, share=counts[uuid] / total if total else 0.0)
            for uuid, each in found_in.items()
            if each is not None
        ]

    @classmethod
    def _of_channel(cls, end: OffsetJson, report: OffsetJson) -> SourceProgress | None:
        """Return the progress in one channel, or None if the offset is none of a channel's."""
        if not Offset.has_keys(end):
            return None
        offset = Offset.of(end)
        if offset is None:
            raise ValueError(f"{end} has the keys of a channel's offset, and is none")
        latest = OffsetReport.of(report)
        if latest is None or latest.channel != offset.channel:
            is_offset = "writeOrderId" in report and "lagEvents" not in report
            return cls(offset.event_id, offset.channel, group=offset.group, is_before_4_2=is_offset)
        return cls(
            end_id=offset.event_id,
            channel=latest.channel,
            path=latest.path,
            group=latest.group if is_name(latest.group) else None,
            owner=latest.owner,
            lag=latest.lag,
        )


def _count(begin: MemberOffset | None, end: MemberOffset) -> int:
    """Return how many IDs there are between two offsets in a channel."""
    first: int = end.offset.get("start", 0) if begin is None else begin.offset["writeOrderId"]
    last: int = end.offset["writeOrderId"]
    return max(0, last - first)


def _json(text: str | None) -> OffsetJson:
    """Parse an offset; return {} for anything else, such as the "None" that pyspark puts for a missing offset."""
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
