"""The files that a sink is writing, by their places: which of them gets which events, and which must be closed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spillable_stream.flow.sinks.buckets import BucketPart, RollRules
from spillable_stream.flow.sinks.open_file import OpenFile

__all__ = ["OpenFiles"]


class OpenFiles:
    """The open files of a sink, one for each place.

    Args:
        rolling: when a file is full.
        most: how many are open at most.
    """

    def __init__(self, rolling: RollRules, most: int) -> None:
        self._rolling = rolling
        self._most = most
        self._by_place: dict[str, OpenFile] = {}

    def __iter__(self) -> Iterator[OpenFile]:
        return iter(self._by_place.values())

    def get(self, place: str) -> OpenFile | None:
        """Return the file of a place; None without one."""
        return self._by_place.get(place)

    def add(self, file: OpenFile) -> None:
        """Add a file, in the place of an earlier one."""
        self._by_place[file.place] = file

    def forget(self, file: OpenFile) -> None:
        """Forget a file, unless another one has its place by now."""
        if self._by_place.get(file.place) is file:
            del self._by_place[file.place]

    def clear(self) -> None:
        """Forget all of them."""
        self._by_place.clear()

    def pieces(self, part: BucketPart) -> Iterator[tuple[OpenFile | None, pa.RecordBatch, pa.Array, int]]:
        """Yield the events of a place by file; None for a file that is yet to be opened.

        Yields:
            The file, its events, their IDs, and the bytes of their bodies.
        """
        file = self.get(part.place)
        pieces = self._rolling.pieces(part.batch, part.ids, file.events if file else 0, file.body_bytes if file else 0)
        for batch, ids, size in pieces:
            if batch.num_rows:
                yield file, batch, ids, size
            file = None

    def over(self, now: float) -> list[OpenFile]:
        """Return the files whose time is over, in monotonic seconds."""
        return [file for file in self if self._rolling.is_over(file.opened_at, file.written_at, now)]

    def next_end(self) -> float:
        """Return when the next file's time is over, in monotonic seconds; infinity if no file's is ever."""
        ends = [self._rolling.ends_at(file.opened_at, file.written_at) for file in self]
        return min(ends, default=float("inf"))

    def surplus(self) -> list[OpenFile]:
        """Return the files that are too many: those that were written first."""
        by_age = sorted(self, key=lambda file: file.written_at)
        return by_age[: max(0, len(by_age) - self._most)]
