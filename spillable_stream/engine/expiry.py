"""Which events have expired, judged by one clock at one moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import Reader
from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.format.extent import Extent
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["expired_events", "now_us"]


def now_us() -> int:
    """Return what the wall clock says, in microseconds since 1970: by it expiry is judged."""
    return time.time_ns() // 1000


def expired_events(engine: Engine, reader: Reader, ranges: Iterable[Range], by_us: int) -> list[Range]:
    """Return those of some events that have expired, in order.

    The state knows it of whole blocks. Only where some events of a block have expired, and some have not, their frames
    are read. One that is damaged or gone has not expired: whoever reads it is told.

    Args:
        engine: the channel.
        reader: reads the frames.
        ranges: the events.
        by_us: the time by which they have expired, in microseconds since 1970 (`now_us`).

    Raises:
        StorageError: the storage refused.
    """
    wanted, before = list(ranges), list[Extent]()
    look: AbstractContextManager[ChannelState] = engine.follower.as_known
    while True:
        found, unclear = RangeSet(), list[Extent]()
        with look as state:
            if not state.blocks.has_expiry:
                return []
            for first, last in wanted:
                expired, more = state.blocks.expired(first, last, by_us)
                unclear += more
                for a, b in expired:
                    found.add(a, b)
        try:
            for first, last in (r for extent in unclear for r in _expired_in(reader, extent, by_us)):
                found.add(first, last)
            return list(found)
        except DataLossError:  # they may be elsewhere by now: a flush, for one, moves them from memory to disk
            if unclear == before:
                return list(found)
            before, look = unclear, engine.snapshot()


def _expired_in(reader: Reader, extent: Extent, by_us: int) -> Iterator[Range]:
    """Yield the events of an extent that have expired."""
    try:
        for header, _ in reader.frames(extent):
            if header.ttl_us and (extent.time_us or header.time_us) + header.ttl_us <= by_us:
                first = header.write_order_id + extent.base_id
                yield max(first, extent.first_id), min(first + header.count - 1, extent.last_id)
    except DataLossError:
        raise
    except CorruptionError:
        return
