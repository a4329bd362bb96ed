"""Events that can never pass, with the reason in their headers."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.flow.event_batch import Header, add_headers, as_event_batch

__all__ = ["dead_letters"]


def dead_letters(
    batch: pa.RecordBatch, ids: pa.Array, *, component: str, error: str, seconds: float
) -> pa.RecordBatch:
    """Return events with the headers ``deadletter.component``, ``.error``, ``.time`` and ``.id``.

    Args:
        batch: the events.
        ids: their write-order IDs in the channel from which they were taken.
        component: what they could not pass.
        error: why.
        seconds: the time, in seconds since 1970.
    """
    added = [
        Header("deadletter.component", component),
        Header("deadletter.error", error),
        Header("deadletter.time", str(int(seconds * 1000))),
        Header("deadletter.id", ids.cast(pa.string())),
    ]
    return add_headers(as_event_batch(batch), added)
