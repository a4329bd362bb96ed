"""Looks at the events of a channel, or of a component of an agent, as they come, and takes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.taken_events import rows_from_table
from spillable_stream.errors import DataLossError

__all__ = ["Chosen", "shown_row", "tap"]

_LOOK_SECONDS = 0.2
_BATCH_BYTES = 1 << 20


class Chosen:
    """Which events somebody wants to see.

    Args:
        every: 1 for all events, n for each n-th.
        where: headers that an event must have, with their values.
    """

    def __init__(self, every: int = 1, where: Mapping[str, str] | None = None) -> None:
        self._every, self._where = every, dict(where or {})
        self._seen = 0

    def rows(self, batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
        """Yield the rows of a batch that are wanted; their headers are a dictionary. Raises as `rows_from_table`."""
        for row in rows_from_table(batch):
            if "headers" in row:
                row["headers"] = dict(row["headers"] or ())
            if self._where and any(row.get("headers", {}).get(name) != value for name, value in self._where.items()):
                continue
            self._seen += 1
            if (self._seen - 1) % self._every == 0:
                yield row


def tap(
    channel: Channel,
    *,
    from_start: bool = False,
    follow: bool = True,
    every: int = 1,
    where: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[dict[str, object]]:
    """Iterate over events as they are put; it holds nothing back, and counts what leaves the channel before it looks.

    Args:
        channel: the channel; a handle that only looks is enough.
        from_start: whether to begin with the first event that is kept, rather than with the next one that is put.
        follow: whether to wait for more at the end.
        every: 1 for all events, n for each n-th.
        where: headers that an event must have, with their values.
        sleep: waits some seconds; for tests.

    Yields:
        Rows of the channel, with ``write_order_id``; headers are a dictionary. Or ``{"skipped": n}``, where n events
        left before they could be shown.

    Raises:
        DataLossError: events are missing that have not left the channel.
        SchemaError: Python has no object for a value, such as a time after the year 9999.
    """
    stats = channel.stats()
    first = stats.kept.first_id if from_start else stats.last_id + 1
    last = stats.last_id
    chosen, missed = Chosen(every, where), ""
    while True:
        if first < stats.kept.first_id:
            yield {"skipped": stats.kept.first_id - first}
            first = stats.kept.first_id
        if not follow and first > last:
            return
        try:
            for batch in channel.read(first, max_bytes=_BATCH_BYTES) if first <= stats.last_id else ():
                if batch.num_rows:
                    first = batch.column(ID_COLUMN)[-1].as_py() + 1
                yield from chosen.rows(batch)
        except DataLossError as e:  # they have left the channel: the next look counts them, and passes over them
            if str(e) == missed:
                raise
            missed = str(e)
        else:
            missed = ""
            if not follow:
                return
        if follow:
            sleep(_LOOK_SECONDS)
        stats = channel.stats()


def shown_row(row: Mapping[str, object]) -> str:
    """Return a row as JSON; bytes that are not UTF-8 are replaced."""
    return json.dumps(row, default=lambda v: v.decode(errors="replace") if isinstance(v, bytes) else str(v))
