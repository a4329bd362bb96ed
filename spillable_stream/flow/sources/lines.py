"""Splits bytes into lines, in columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

__all__ = ["Lines", "cut_long", "split_lines"]


class Lines(NamedTuple):
    """Whole lines of a piece of a file.

    Args:
        bodies: the lines without their ends, as an Arrow binary array.
        starts: where each line starts in the piece, in bytes.
        size_bytes: how long all lines are with their ends; what follows is the beginning of a line.
    """

    bodies: pa.Array
    starts: np.ndarray
    size_bytes: int

    def end_of(self, line: int) -> int:
        """Return where the line before ``line`` ends, in bytes of the piece."""
        return int(self.starts[line]) if line < len(self.starts) else self.size_bytes


def split_lines(piece: bytes, *, drop_cr: bool) -> Lines:
    """Split a piece of a file at its line feeds.

    Args:
        piece: the bytes; what follows the last line feed is left out.
        drop_cr: whether a carriage return before a line feed belongs to the line's end.
    """
    ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == 10)
    count = len(ends)
    if count == 0:
        return Lines(pa.array([], pa.binary()), np.zeros(0, np.int64), 0)
    size = int(ends[-1]) + 1
    starts = np.zeros(count, np.int64)
    starts[1:] = ends[:-1] + 1
    lengths = ends - starts
    whole = piece if size == len(piece) else piece[:size]
    if drop_cr and b"\r\n" in whole:
        lengths = lengths - (_before(whole, ends) & (lengths > 0))
        whole = whole.replace(b"\r\n", b"\n")
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return Lines(_binary(offsets, whole.replace(b"\n", b"")), starts, size)


def _before(piece: bytes, ends: np.ndarray) -> np.ndarray:
    """Tell for each line feed whether a carriage return is before it."""
    return np.frombuffer(piece, np.uint8)[np.maximum(ends - 1, 0)] == 13


def _binary(offsets: np.ndarray, values: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def cut_long(bodies: pa.Array, max_bytes: int) -> pa.Array:
    """Return the lines with each longer one cut into several, none longer than ``max_bytes``."""
    if len(bodies) == 0:
        return bodies
    start = bodies.offset
    offsets = np.frombuffer(bodies.buffers()[1], np.int32)[start : start + len(bodies) + 1]
    lengths = np.diff(offsets)
    if int(lengths.max()) <= max_bytes:
        return bodies
    pieces = np.maximum(1, -(-lengths // max_bytes))
    first = np.cumsum(pieces) - pieces
    nth = np.arange(int(pieces.sum())) - np.repeat(first, pieces)
    cut = np.repeat(offsets[:-1], pieces) + nth * max_bytes
    values = bodies.buffers()[2]
    return _binary(np.append(cut, offsets[-1]).astype(np.int32), values if values is not None else b"")
