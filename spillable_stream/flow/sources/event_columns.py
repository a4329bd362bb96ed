"""Makes event batches of bodies and headers, in columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from spillable_stream.format.batch import EVENT_SCHEMA

__all__ = ["event_batch", "events_of", "path_header"]


def event_batch(
    bodies: pa.Array, headers: Mapping[str, str] | None = None, columns: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Return a batch of events.

    Args:
        bodies: one binary value an event.
        headers: headers that all events have, with the same value.
        columns: headers that all events have, with one text an event.
    """
    constant, varying, rows = headers or {}, columns or {}, len(bodies)
    names, count = [*constant, *varying], len(constant) + len(varying)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * count)
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(count), rows)))
    pool = pa.concat_arrays(
        [pa.array(constant.values(), pa.string()), *(c.cast(pa.string()) for c in varying.values())]
    )
    indices = np.empty((rows, count), np.int64)
    indices[:, : len(constant)] = np.arange(len(constant))
    for i in range(len(varying)):
        indices[:, len(constant) + i] = len(constant) + i * rows + np.arange(rows)
    values = pool.take(pa.array(indices.ravel()))
    return pa.RecordBatch.from_arrays([pa.MapArray.from_arrays(offsets, keys, values), bodies], schema=EVENT_SCHEMA)


def events_of(bodies: Sequence[bytes], headers: Sequence[Mapping[str, str]]) -> pa.RecordBatch:
    """Return a batch of events whose headers differ, one by one; for requests and datagrams, which are small."""
    pairs = pa.array([list(h.items()) for h in headers], EVENT_SCHEMA.field("headers").type)
    return pa.RecordBatch.from_arrays([pairs, pa.array(bodies, pa.binary())], schema=EVENT_SCHEMA)


def path_header(path: str) -> str:
    """Return a path as a header can have it: a name may have bytes that are not text, and each is U+FFFD there."""
    return os.fsencode(path).decode(errors="replace")
