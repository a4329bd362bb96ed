"""Hadoop's SequenceFile, written in columns: keys are times, values are bodies.

The format is that of ``org.apache.hadoop.io.SequenceFile``, version 6. Without a codec a file is a header, and records
of key and value, with a sync marker between them now and then. With one, as Flume writes it, it is compressed by block:
a sync marker, how many records follow, and four compressed columns: lengths of keys, keys, lengths of values, values.
"""

from __future__ import annotations

import os
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.flow.sinks.compression import JAVA_CLASSES, compressed

__all__ = ["SequenceFileEncoder"]

_VERSION = b"SEQ\x06"
_KEY_CLASS = "org.apache.hadoop.io.LongWritable"
_VALUE_CLASSES = {"Writable": "org.apache.hadoop.io.BytesWritable", "Text": "org.apache.hadoop.io.Text"}
_SYNC_ESCAPE = struct.pack(">i", -1)
_SYNC_EVERY_BYTES = 80 << 10
_KEY_BYTES = 8
_FIXED = np.dtype([("record", ">i4"), ("key", ">i4"), ("time", ">i8")])


class SequenceFileEncoder:
    """Makes the bytes of one file.

    Args:
        write_format: ``Writable`` for values that are BytesWritable, ``Text`` for Text.
        codec: how blocks are compressed, see `compressor`; None for single records as they are.
        marker: the file's sync marker, 16 random bytes.

    Raises:
        OptionError: there is no such codec.
    """

    def __init__(
        self, write_format: str = "Writable", codec: str | None = None, *, marker: bytes | None = None
    ) -> None:
        self._codec = codec
        if codec is not None:
            compressed(b"", codec)
        self._value_class = _VALUE_CLASSES[write_format]
        self._is_text = write_format == "Text"
        self._marker = marker or os.urandom(16)
        self._since_marker = 0

    def header(self) -> bytes:
        """Return what a file begins with."""
        flags = b"\x00\x00" if self._codec is None else b"\x01\x01" + _text(JAVA_CLASSES[self._codec.lower()])
        metadata = struct.pack(">i", 0)
        return _VERSION + _text(_KEY_CLASS) + _text(self._value_class) + flags + metadata + self._marker

    def encode(self, bodies: pa.Array, times_ms: np.ndarray) -> bytes:
        """Return some records; with a codec they are one block.

        Args:
            bodies: the values.
            times_ms: the keys, in milliseconds since 1970.
        """
        bodies = bodies.fill_null(b"") if bodies.null_count else bodies
        lengths = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64)
        prefixes = _vints(lengths) if self._is_text else _ints(lengths)
        prefix_lengths = pc.binary_length(prefixes).to_numpy(zero_copy_only=False)
        if self._codec is not None:
            return self._block(bodies, prefixes, prefix_lengths + lengths, times_ms, self._codec)
        fixed = np.empty(len(lengths), _FIXED)
        fixed["record"] = _KEY_BYTES + prefix_lengths + lengths
        fixed["key"] = _KEY_BYTES
        fixed["time"] = times_ms
        records = pc.binary_join_element_wise(_fixed_width(fixed), prefixes, bodies, pa.scalar(b"", pa.binary()))
        marker = b""
        if self._since_marker >= _SYNC_EVERY_BYTES:
            marker, self._since_marker = _SYNC_ESCAPE + self._marker, 0
        data = marker + _joined(records)
        self._since_marker += len(data)
        return data

    def _block(
        self, bodies: pa.Array, prefixes: pa.Array, lengths: np.ndarray, times_ms: np.ndarray, codec: str
    ) -> bytes:
        if not len(bodies):
            return b""
        values = pc.binary_join_element_wise(prefixes, bodies, pa.scalar(b"", pa.binary()))
        columns = (
            bytes([_KEY_BYTES]) * len(bodies),
            times_ms.astype(">i8").tobytes(),
            _joined(_vints(lengths)),
            _joined(values),
        )
        packed = [compressed(column, codec) for column in columns]
        begin = _SYNC_ESCAPE + self._marker + _vint(len(bodies))
        return begin + b"".join(_vint(len(column)) + column for column in packed)


def _joined(records: pa.Array) -> bytes:
    values, offsets = records.buffers()[2], np.frombuffer(records.buffers()[1], np.int32)
    return bytes(values.slice(int(offsets[0]), int(offsets[len(records)]) - int(offsets[0])))


def _fixed_width(values: np.ndarray) -> pa.Array:
    """Return values of a fixed width as binary values."""
    width = values.dtype.itemsize
    offsets = np.arange(len(values) + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _ints(lengths: np.ndarray) -> pa.Array:
    return _fixed_width(lengths.astype(">i4"))


def _vints(lengths: np.ndarray) -> pa.Array:
    """Return lengths as Hadoop's variable-length integers."""
    distinct, which = np.unique(lengths, return_inverse=True)
    return pa.array([_vint(int(n)) for n in distinct], pa.binary()).take(pa.array(which))


def _vint(value: int) -> bytes:
    if value <= 127:
        return bytes([value])
    size = (value.bit_length() + 7) // 8
    return struct.pack("b", -112 - size) + value.to_bytes(size, "big")


def _text(text: str) -> bytes:
    return _vint(len(text)) + text.encode()
