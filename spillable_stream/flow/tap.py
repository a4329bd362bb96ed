"""Looks at the events of a channel as they come, and takes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.errors import DataLossError

__all__ = ["tap"]

_LOOK_SECONDS = 0.2
_BATCH_BYTES = 1 << 20


def tap(
    channel: Channel,
    *,
    from_start: bool = False,
    follow: bool = True,
    every: int = 1,
    where: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[dict[str, object]]:
    """Iterate over events as they are put; it holds nothing back, so it skips what leaves the channel before it looks.

    Args:
        channel: the channel; a handle that only looks is enough.
        from_start: whether to begin with the first event that is kept, rather than with the next one that is put.
        follow: whether to wait for more at the end.
        every: 1 for all events, n for each n-th.
        where: headers that an event must have, with their values.
        sleep: waits some seconds; for tests.

    Yields:
        Rows of the channel, with ``write_order_id``; headers are a dictionary.
    """
    stats = channel.stats()
    first = stats.kept.first_id if from_start else stats.last_id + 1
    seen = 0
    while True:
        for batch in _read(channel, first):
            for row in batch.to_pylist():
                first = row[ID_COLUMN] + 1
                if "headers" in row:
                    row["headers"] = dict(row["headers"] or ())
                if where and any(row.get("headers", {}).get(name) != value for name, value in where.items()):
                    continue
                seen += 1
                if (seen - 1) % every == 0:
                    yield row
        if not follow:
            return
        sleep(_LOOK_SECONDS)


def _read(channel: Channel, first: int) -> Iterator[pa.RecordBatch]:
    stats = channel.stats()
    if first > stats.last_id:
        return
    try:
        yield from channel.read(max(first, stats.kept.first_id), max_bytes=_BATCH_BYTES)
    except DataLossError:
        return  # they have left the channel: the next look begins behind them
