"""The fingerprint of a batch, by which one that is sent again is told from another one with its number."""

from __future__ import annotations

import contextlib
import zlib

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.format.conversion import cast_column
from spillable_stream.format.types import NOT_ARROW, with_leaves

__all__ = ["fingerprint"]

_ROWS = 65_536
# In the names of types whose copies `take` does not make, or makes with what lies beneath a null, or elsewhere.
_NOT_COPIED = ("_view", "run_end_encoded", "struct<", "fixed_size_list", "dictionary")


def fingerprint(batch: pa.RecordBatch) -> int:
    """Return a checksum of a batch's events, 1 to 2^32-1, which is the same for a slice and for a copy of it.

    It is that of the bodies of Arrow's IPC messages, whose layout Arrow's format defines, and not of their metadata,
    which may change with Arrow's version. Of the types that may lie in memory in many ways it is that of the values.

    Raises:
        SchemaError: the batch has times that Python does not have, and can't be compared; see `_values`.
    """
    found = zlib.crc32(b"%d" % batch.num_rows)
    if any(name in str(t) for t in batch.schema.types for name in _NOT_COPIED):
        return zlib.crc32(repr(_values(batch)).encode(errors="surrogatepass"), found) or 1
    for start in range(0, batch.num_rows, _ROWS):  # a message has a bound
        rows = pa.array(range(start, min(start + _ROWS, batch.num_rows)), pa.int64())
        copy = batch.take(rows)  # a slice's bits are padded with those of its neighbours, and nulls may be anything
        found = zlib.crc32(pa.ipc.read_message(copy.serialize()).body, found)
    return found or 1


def _values(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Return the values of a batch; times as numbers, if there are some that Python does not have.

    Raises:
        SchemaError: Arrow can't make numbers of such times in a column of its type.
    """
    with contextlib.suppress(OverflowError, ValueError):
        found: list[dict[str, object]] = batch.to_pylist()
        return found
    try:
        columns = [cast_column(column, with_leaves(column.type, _numbers)) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()  # type: ignore[no-any-return]
    except NOT_ARROW as e:
        raise SchemaError(
            f"a batch with a sequence has a time that Python does not have ({e}), in a column whose type keeps it from "
            "being compared; give the column another type, such as that of its values, or send it without a sequence"
        ) from e


def _numbers(t: pa.DataType) -> pa.DataType:
    """Return a type with its times as numbers."""
    if isinstance(t, pa.BaseExtensionType):
        return with_leaves(t.storage_type, _numbers)
    if pa.types.is_list_view(t):
        return pa.list_view(with_leaves(t.value_type, _numbers))
    if pa.types.is_large_list_view(t):
        return pa.large_list_view(with_leaves(t.value_type, _numbers))
    if not pa.types.is_temporal(t) or pa.types.is_interval(t):
        return t
    return pa.int32() if t.bit_width == 32 else pa.int64()
