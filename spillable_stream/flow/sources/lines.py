"""Splits bytes into lines, in columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

__all__ = ["SplitLines", "cut_long", "split_lines"]


class SplitLines(NamedTuple):
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


def split_lines(piece: bytes, *, drop_cr: bool) -> SplitLines:
    """Split a piece of a file at its line feeds.

    Args:
        piece: the bytes; what follows the last line feed is left out.
        drop_cr: whether a carriage return before a line feed belongs to the line's end.
    """
    ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == 10)
    count = len(ends)
    if count == 0:
        return SplitLines(pa.array([], pa.binary()), np.zeros(0, np.int64), 0)
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
    return SplitLines(_binary(offsets, whole.replace(b"\n", b"")), starts, size)


def _before(piece: bytes, ends: np.ndarray) -> np.ndarray:
    """Tell for each line feed whether a carriage return is before it."""
    return np.asarray(np.frombuffer(piece, np.uint8)[np.maximum(ends - 1, 0)] == 13)


def _binary(offsets: np.ndarray, values: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def cut_long(lines: SplitLines, max_characters: int, piece: bytes) -> SplitLines:
    """Return the lines with each longer one cut into several, none longer than ``max_characters``.

    Args:
        lines: the lines of a piece, split without dropping carriage returns.
        max_characters: how long a line may be.
        piece: the bytes that were split, in UTF-8.
    """
    if len(lines.starts) == 0:
        return lines
    lengths = np.diff(np.append(lines.starts, lines.size_bytes)) - 1
    if int(lengths.max()) <= max_characters:
        return lines
    if not piece.isascii():
        return _cut_text(lines, max_characters)
    pieces = np.maximum(1, -(-lengths // max_characters))
    first = np.cumsum(pieces) - pieces
    inside = (np.arange(int(pieces.sum())) - np.repeat(first, pieces)) * max_characters
    cut = np.minimum(np.repeat(lengths, pieces) - inside, max_characters)
    offsets = np.zeros(len(cut) + 1, np.int32)
    np.cumsum(cut, out=offsets[1:])
    values = lines.bodies.buffers()[2]
    bodies = _binary(offsets, b"" if values is None else values.to_pybytes())
    return SplitLines(bodies, np.repeat(lines.starts, pieces) + inside, lines.size_bytes)


def _cut_text(lines: SplitLines, max_characters: int) -> SplitLines:
    """Cut lines that are not ASCII between characters, one by one."""
    bodies: list[bytes] = []
    starts: list[int] = []
    for body, start in zip(lines.bodies.to_pylist(), lines.starts.tolist(), strict=True):
        text = body.decode()
        for i in range(0, max(len(text), 1), max_characters):
            part = text[i : i + max_characters].encode()
            bodies.append(part)
            starts.append(start)
            start += len(part)
    return SplitLines(pa.array(bodies, pa.binary()), np.array(starts, np.int64), lines.size_bytes)
