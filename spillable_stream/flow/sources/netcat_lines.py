"""Divides what comes through a connection into lines, and finds those that are too long."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.flow.sources.lines import split_lines

__all__ = ["NetcatLines", "Run"]


class Run(NamedTuple):
    """Lines in a row, none of which is too long.

    Args:
        bodies: the lines without their ends, in UTF-8; there may be none.
        is_before_long: whether a line follows that is too long.
    """

    bodies: pa.Array
    is_before_long: bool


class NetcatLines:
    """The lines of a connection. No more of one is kept than makes it too long.

    Args:
        longest: how many characters make a line with its end too long without it.
        encoding: the character set of the lines.
    """

    def __init__(self, longest: int, encoding: str) -> None:
        self._longest, self._encoding = longest, encoding
        self._held = b""
        self._skips = False  # whether what comes belongs to a line that is too long, up to a line feed

    @property
    def held_bytes(self) -> int:
        """How many bytes have come of a line whose end has not, and which is not too long."""
        return len(self._held)

    def add(self, data: bytes) -> list[Run]:
        """Return the lines that are whole now.

        Args:
            data: what has come.
        """
        if self._skips:
            _, line_feed, data = data.partition(b"\n")
            self._skips = not line_feed
        if self._skips:
            return []
        data = self._held + data
        lines = split_lines(data, drop_cr=False)
        found, self._held = self._runs(lines.bodies), data[lines.size_bytes :]
        held = self._held
        if len(held) >= self._longest and len(held.decode(self._encoding, "replace")) >= self._longest:
            self._held, self._skips = b"", True
            found[-1] = found[-1]._replace(is_before_long=True)
        return found

    def _runs(self, lines: pa.Array) -> list[Run]:
        """Return the lines between those that are too long; the last run is before none."""
        bodies = self._decoded(lines)
        starts = [0, *(self._too_long(bodies) + 1).tolist()]
        runs = [Run(bodies.slice(a, b - a - 1), is_before_long=True) for a, b in pairwise(starts)]
        return [*runs, Run(bodies.slice(starts[-1]), is_before_long=False)]

    def _too_long(self, bodies: pa.Array) -> np.ndarray:
        """Return the numbers of the lines that are too long."""
        if not len(bodies):
            return np.zeros(0, np.int64)
        lengths = pc.binary_length(bodies).to_numpy(zero_copy_only=False)
        if int(lengths.max()) >= self._longest:
            lengths = np.array([len(b.decode(errors="replace")) for b in bodies.to_pylist()])
        return np.flatnonzero(lengths >= self._longest)

    def _decoded(self, bodies: pa.Array) -> pa.Array:
        if self._encoding == "utf-8":
            return bodies
        return pa.array([b.decode(self._encoding, "replace").encode() for b in bodies.to_pylist()], pa.binary())
