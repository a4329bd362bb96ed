"""The events of a side file in the order in which they are due; made when the first of them is."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

import pyarrow as pa

from spillable_stream.log.delayed_frames import SideFiles
from spillable_stream.state.delays import DelayedFile, Place

__all__ = ["DelayedIndex"]

_KEYS = ("due", "offset", "row")
_FEW_PART = 64  # of the events that are known


class DelayedIndex:
    """Which event of a side file is due next: 24 bytes for each event, and 8 for each that was copied with others."""

    def __init__(self, files: SideFiles) -> None:
        self._files = files
        self._end = 0  # up to where the file was read
        self._columns = [array("q"), array("q"), array("q")]
        self._at = 0  # the next event
        self._puts: dict[int, Sequence[int]] = {}  # of frames with events of several puts, by offset

    def follow(self, file: DelayedFile) -> None:
        """Read what was appended to the file, and pass over what was delivered.

        Raises:
            DataLossError: the file is missing.
            CorruptionError: it is damaged.
        """
        if file.end > self._end:
            self._read(file)
        self._at = bisect_right(range(len(self)), file.delivered, lo=min(self._at, len(self)), key=self.place)

    def _read(self, file: DelayedFile) -> None:
        dues, offsets, rows = found = [array("q"), array("q"), array("q")]
        for frame in self._files.frames(file, self._end):
            dues.extend(frame.dues)
            offsets.extend(array("q", [frame.offset]) * len(frame.dues))
            rows.extend(range(len(frame.dues)))
            if frame.puts:
                self._puts[frame.offset] = frame.puts
        for column in self._columns:
            del column[: self._at]
        self._at, self._end = 0, file.end
        if len(dues) < len(self) // _FEW_PART:  # of many small puts each would sort all again
            for place in zip(dues, offsets, rows, strict=True):
                self._insert(place)
        else:
            self._columns = _ordered([known + new for known, new in zip(self._columns, found, strict=True)])

    def _insert(self, place: Place) -> None:
        at = bisect_right(range(len(self)), place, key=self.place)
        for column, value in zip(self._columns, place, strict=True):
            column.insert(at, value)

    def __len__(self) -> int:
        return len(self._columns[0])

    def place(self, at: int) -> Place:
        """Return the place of an event, by its number in the order."""
        dues, offsets, rows = self._columns
        return dues[at], offsets[at], rows[at]

    def put(self, place: Place) -> int:
        """Return the number of the put that an event was in; 0 if all events of the file were in one put."""
        _, offset, row = place
        return self._puts[offset][row] if offset in self._puts else 0

    def due(self, now_ms: int, limit: int) -> list[Place]:
        """Return the places of the next events that are due, by a clock in milliseconds since 1970.

        Args:
            now_ms: the time.
            limit: how many at most.
        """
        until = min(bisect_right(self._columns[0], now_ms, lo=self._at), self._at + limit)
        return [self.place(at) for at in range(self._at, until)]

    def next_ms(self, after: int) -> int:
        """Return when the event is due that comes after so many others; 0 if there is none."""
        at = self._at + after
        return self._columns[0][at] if at < len(self) else 0


def _ordered(columns: list[array[int]]) -> list[array[int]]:
    values = [pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(column)]) for column in columns]
    table = pa.table(values, names=list(_KEYS)).sort_by([(key, "ascending") for key in _KEYS])
    return [array("q", column.to_pylist()) for column in table.columns]
