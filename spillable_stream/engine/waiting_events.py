"""Delayed events, read from side files, in the order in which they are due."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.format.batch import decode_batch
from spillable_stream.format.frame import message_of
from spillable_stream.log.delayed_frames import SideFiles
from spillable_stream.state.delays import DelayedFile, Place

__all__ = ["EventKind", "WaitingEvents"]


class EventKind(NamedTuple):
    """What all events of one frame have in common.

    Args:
        schema_id: the number of their schema.
        ttl_us: their ttl, in microseconds; 0 for none.
    """

    schema_id: int
    ttl_us: int


class WaitingEvents:
    """Events of side files.

    Args:
        files: the side files.
        schemas: the channel's schemas, oldest first.
    """

    def __init__(self, files: SideFiles, schemas: Sequence[pa.Schema]) -> None:
        self._files = files
        self._schemas = schemas
        self._batches: dict[EventKind, list[pa.RecordBatch]] = {}
        self._rows: Counter[EventKind] = Counter()
        self._where: dict[tuple[int, int, int], tuple[EventKind, int]] = {}  # the kind of each, and its row in that

    def read(self, file: DelayedFile, places: Sequence[Place]) -> None:
        """Read events of a side file; of each frame the rows from the first one to the last.

        Args:
            file: the file.
            places: where the events are, in any order.

        Raises:
            CorruptionError: the file is damaged, or missing.
            StorageError: it can't be read now.
        """
        by_frame: dict[int, list[int]] = {}
        for _, offset, row in places:
            by_frame.setdefault(offset, []).append(row)
        for offset, (header, payload) in zip(by_frame, self._files.puts(file, list(by_frame)), strict=True):
            kind, rows = EventKind(header.schema_id, header.ttl_us), by_frame[offset]
            if kind.schema_id >= len(self._schemas):
                raise self._files.damaged(file, offset)
            whole = decode_batch(message_of(header, payload), self._schemas[kind.schema_id])
            self._batches.setdefault(kind, []).append(whole.slice(rows[0], len(rows)))
            self._where.update({(file.number, offset, row): (kind, self._rows[kind] + i) for i, row in enumerate(rows)})
            self._rows[kind] += len(rows)

    def in_order(self, order: Sequence[tuple[Place, int]]) -> Iterator[tuple[EventKind, pa.RecordBatch]]:
        """Yield events that were read, in an order; neighbors of one kind come together.

        Args:
            order: of each event its place, and the number of its file.
        """
        tables = {kind: pa.Table.from_batches(found) for kind, found in self._batches.items()}
        found = [self._where[number, offset, row] for (_, offset, row), number in order]
        for kind, run in groupby(found, key=lambda event: event[0]):
            rows = array("q", [row for _, row in run])
            indices = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
            for batch in tables[kind].take(indices).combine_chunks().to_batches():
                yield kind, batch
