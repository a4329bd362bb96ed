"""Columns of texts or bytes, made and looked at by where each value ends: no value is copied or becomes an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spillable_stream.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["repeated", "spans_of", "text_data", "text_ends", "texts_of"]

_MOST_BYTES = (1 << 31) - 1  # offsets have 32 bits


def text_ends(texts: pa.Array) -> NDArray[np.int32]:
    """Return where each text begins, and where the last one ends, in the column's data."""
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]


def text_data(texts: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of a column's data, those of all texts that share it."""
    return np.frombuffer(texts.buffers()[2] or b"", np.uint8)


def texts_of(lengths: NDArray[np.int32], data: pa.Buffer | None) -> pa.Array:
    """Return a column of the texts that have these lengths in bytes, one after the other in the data.

    Raises:
        SchemaError: they are larger than 2 GiB.
    """
    _check_size(int(lengths.sum(dtype=np.int64)))
    ends = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(lengths, out=ends[1:], dtype=np.int32)
    return _column(pa.string(), ends, data)


def spans_of(texts: pa.Array, ends: NDArray[np.int32]) -> pa.Array:
    """Return a column of bytes that shares the data of another, divided at other places.

    Args:
        texts: the other column.
        ends: where each value begins, and where the last one ends, in the column's data.
    """
    return _column(pa.binary(), np.ascontiguousarray(ends), texts.buffers()[2])


def repeated(texts: Sequence[str], count: int) -> pa.Array:
    """Return a column of some texts, again and again.

    Raises:
        SchemaError: they are larger than 2 GiB then.
    """
    raw = [text.encode() for text in texts]
    together = b"".join(raw)
    _check_size(len(together) * count)
    ends = np.empty(len(raw) * count + 1, np.int32)
    table, begins = ends[:-1].reshape(count, len(raw)), np.arange(count, dtype=np.int32) * len(together)
    for column, text in enumerate(raw):
        table[:, column] = begins
        begins += len(text)
    ends[-1] = len(together) * count
    return _column(pa.string(), ends, pa.py_buffer(together * count))


def _check_size(size_bytes: int) -> None:
    if size_bytes > _MOST_BYTES:
        raise SchemaError("the headers of one batch are larger than 2 GiB; put fewer events at once")


def _column(kind: pa.DataType, ends: NDArray[np.int32], data: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(ends), data or pa.py_buffer(b"")])
