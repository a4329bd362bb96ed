"""The Arrow message of a few events, written without Arrow.

Arrow takes some microseconds for it, and gives up the interpreter's lock four times meanwhile. Where other threads put
events too, one of them takes the lock each time, and on another core: a put of one event took a third as long again.

The bytes are those that `pyarrow.RecordBatch.serialize` makes of the same events
(`<https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format>`_). Their metadata, a flatbuffer,
differs from one message to the next in its numbers only::

    0         8            40     48            72     80                                  280             368
    +---------+------------+------+-------------+------+--------+----------------+--------+-----------------+------+
    | -1, 360 | a message, | size | a record    | rows | 0, 12, | the 12 buffers | 0, 5,  | the 5 columns:  | body |
    | i32     | and which  | of   | batch, and  | i64  | i32    | offset, size,  | i32    | rows, nulls,    |      |
    |         |            | body | what it has |      |        | i64            |        | i64             |      |
    +---------+------------+------+-------------+------+--------+----------------+--------+-----------------+------+

All numbers are little-endian. The columns are the headers, their entries, the keys, the values, and the bodies. Each
has a buffer of nulls, which is empty here; all but the entries have one of offsets; keys, values and bodies one of
bytes. They follow each other in the body, each with zeros up to a multiple of 8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct, pack

__all__ = ["event_message"]

_METADATA = Struct("<ii32sq24sqii24qii10q")
_MESSAGE = bytes.fromhex("1400000000000000 0c00160006000500 08000c000c000000 0003040018000000")
_RECORD_BATCH = bytes.fromhex("00000a0018000c00 040008000a000000 dc00000010000000")
_PADDING = [bytes(-size % 8) for size in range(8)]
_NULLS_BEFORE = (1, 2, 0, 1, 0, 1, 0)
"""How many buffers of nulls stand before each of the others."""


def event_message(
    ends: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes], bodies: Sequence[bytes]
) -> bytes:
    """Return the encapsulated Arrow message of events, at least one, as a record batch of the event schema.

    Args:
        ends: 0, and behind it where the headers of each event end among all headers.
        keys: the keys of all headers, as UTF-8.
        values: their values.
        bodies: the bodies; all four have less than 2 GiB.
    """
    rows, entries = len(bodies), len(keys)
    buffers = (
        pack(f"<{rows + 1}i", *ends) if keys else bytes(4 * (rows + 1)),
        _ends(keys),
        b"".join(keys),
        _ends(values),
        b"".join(values),
        _ends(bodies),
        b"".join(bodies),
    )
    places: list[int] = []
    parts, at = [b""], 0
    for nulls, buffer in zip(_NULLS_BEFORE, buffers, strict=True):
        size = len(buffer)
        padding = _PADDING[size % 8]
        places += (at, 0) * nulls + (at, size)
        parts += buffer, padding
        at += size + len(padding)
    columns = (rows, 0, entries, 0, entries, 0, entries, 0, rows, 0)
    parts[0] = _METADATA.pack(-1, 360, _MESSAGE, at, _RECORD_BATCH, rows, 0, 12, *places, 0, 5, *columns)
    return b"".join(parts)


def _ends(parts: Sequence[bytes]) -> bytes:
    """Return 0, and behind it where each part ends, as Arrow's offsets."""
    lengths = list(map(len, parts))
    if lengths and lengths.count(lengths[0]) == len(lengths):
        return _equal_ends(lengths[0], len(lengths))
    return pack(f"<{len(lengths) + 1}i", *accumulate(lengths, initial=0))


@lru_cache(maxsize=8)
def _equal_ends(length: int, count: int) -> bytes:
    return pack(f"<{count + 1}i", *(length * i for i in range(count + 1)))
