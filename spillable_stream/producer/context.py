"""The context of events: by which producer each was sent, and in which of its batches.

Ordered by producer, sequence and write-order ID, the events of one producer are in the order in which
they were sent to a channel, however their batches were committed.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import pairwise

import pyarrow as pa

from spillable_stream.format.batch import EVENT_SCHEMA

__all__ = ["PRODUCER_ID", "PRODUCER_SEQUENCE", "with_context"]

PRODUCER_ID = "producer_id"
PRODUCER_SEQUENCE = "producer_sequence"

_ROWS = 4096


def with_context(batch: pa.RecordBatch, producer_id: str, sequence: int) -> pa.RecordBatch:
    """Return the events of a batch with the headers that say where they come from.

    An event that has one of these headers already keeps what it has: it was sent by another producer before.

    Args:
        batch: events, in the event schema.
        producer_id: the producer's ID.
        sequence: the batch's number.
    """
    headers, rows = batch.column(0), batch.num_rows
    said = producer_id.encode(), b"%d" % sequence
    keys, values = _repeated((PRODUCER_ID.encode(), PRODUCER_SEQUENCE.encode()), rows), _repeated(said, rows)
    if len(headers.keys) == 0 and not headers.null_count:
        offsets = _offsets((2,), _rounded(rows)).slice(0, rows + 1)
    else:
        offsets, order = _merged(headers, rows)
        keys = pa.concat_arrays([headers.keys, keys]).take(order)
        values = pa.concat_arrays([headers.items, values]).take(order)
    return pa.RecordBatch.from_arrays(
        [pa.MapArray.from_arrays(offsets, keys, values), batch.column(1)], schema=EVENT_SCHEMA
    )


def _merged(headers: pa.MapArray, rows: int) -> tuple[pa.Array, pa.Array]:
    """Return the offsets of the headers with the context, and which entries of both, one after the other, they are."""
    names, own = headers.keys.to_pylist(), len(headers.keys)
    ends, order = array("i", [0]), array("i")
    for row, (start, end) in enumerate(pairwise(headers.offsets.to_pylist())):
        order.extend(range(start, end))
        if PRODUCER_ID not in names[start:end] and PRODUCER_SEQUENCE not in names[start:end]:
            order.extend((own + 2 * row, own + 2 * row + 1))
        ends.append(len(order))
    return _int32(ends), _int32(order)


def _repeated(pair: tuple[bytes, bytes], rows: int) -> pa.Array:
    """Return two texts, over and over."""
    offsets = _offsets((len(pair[0]), len(pair[1])), _rounded(rows))
    buffers = [None, offsets.buffers()[1], pa.py_buffer(b"".join(pair) * rows)]
    return pa.Array.from_buffers(pa.string(), 2 * rows, buffers)


def _rounded(rows: int) -> int:
    """Return how many rows to make offsets for: those of few sizes are kept."""
    return -(-rows // _ROWS) * _ROWS


@lru_cache(maxsize=32)
def _offsets(lengths: tuple[int, ...], rows: int) -> pa.Array:
    """Return the offsets of texts with these lengths, over and over."""
    width, count = sum(lengths), len(lengths)
    ends, found = 0, array("i", bytes(4 * (count * rows + 1)))
    for i, length in enumerate(lengths):
        ends += length
        found[1 + i :: count] = array("i", range(ends, ends + width * rows, width))
    return _int32(found)


def _int32(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
