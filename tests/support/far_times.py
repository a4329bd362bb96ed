"""Times after the year 9999, which Arrow has, and Python has no object for."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream import Channel

__all__ = ["FAR", "put_far_times"]

FAR: pa.RecordBatch = pa.record_batch({
    "n": pa.array([1, 2]),
    "at": pa.array([0, 1 << 40]).cast(pa.timestamp("s")),
})  # fmt: skip
"""A row that has one in the column ``at``, behind one that has none."""


def put_far_times(channel: Channel) -> None:
    """Put `FAR` to a channel of its columns."""
    with channel.put_transaction() as tx:
        tx.put_batch(FAR)
