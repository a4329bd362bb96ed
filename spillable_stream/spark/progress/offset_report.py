"""What a source tells Spark of the end of its channel, and a listener reads in a query's progress."""

from __future__ import annotations

from dataclasses import dataclass

from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.source.offset import OffsetJson

__all__ = ["OffsetReport"]


@dataclass(frozen=True, slots=True)
class OffsetReport:
    """Where a channel ends, and how far a query is behind it. In JSON, with sorted keys.

    Args:
        channel: ``channel``, the channel's UUID.
        last_id: ``writeOrderId``, its last event.
        path: ``path``, its directory.
        group: ``group``, the group that the query reads as.
        owner: ``owner``, what the source wrote about itself (`Consumer.owner`); null while it owns nothing.
        lag: ``lagEvents``, the events that no batch has covered: what the group has yet to take beyond the batch that
            Spark plans now; and ``oldestPutTimeMicros``, when the first of these was put, since 1970; null if there are
            none. A channel is one partition, so ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and
            ``avgOffsetsBehindLatest`` (Kafka's words) are ``lagEvents`` too.
        restore: ``restore``, like that of an `Offset`: so ``startingOffsets`` takes what Spark's progress says.
        recovery: ``recovery``, likewise.
    """

    channel: str
    last_id: int
    path: str
    group: str
    owner: str | None
    lag: Lag
    restore: str = ""
    recovery: str = ""

    @classmethod
    def of(cls, value: OffsetJson) -> OffsetReport | None:
        """Return what a source told, or None if it told nothing: before Spark 4.2, or of a batch that is tried again.

        Raises:
            KeyError: only a part of it is there.
        """
        if not {"channel", "path"} <= value.keys():
            return None
        lag = Lag(value["lagEvents"], value["oldestPutTimeMicros"])
        return cls(
            value["channel"],
            value["writeOrderId"],
            value["path"],
            value["group"],
            value["owner"],
            lag,
            value.get("restore", ""),
            value.get("recovery", ""),
        )

    def to_json(self) -> OffsetJson:
        """Return it for Spark."""
        return {
            "avgOffsetsBehindLatest": float(self.lag.events),
            "channel": self.channel,
            "group": self.group,
            "lagEvents": self.lag.events,
            "maxOffsetsBehindLatest": self.lag.events,
            "minOffsetsBehindLatest": self.lag.events,
            "oldestPutTimeMicros": self.lag.put_time_us,
            "owner": self.owner,
            "path": self.path,
            **({"recovery": self.recovery} if self.recovery else {}),
            **({"restore": self.restore} if self.restore else {}),
            "writeOrderId": self.last_id,
        }
