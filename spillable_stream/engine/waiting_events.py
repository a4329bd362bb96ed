"""Delayed events, read from side files, in the order in which they are due."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import groupby, takewhile
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.format.batch import decode_batch
from spillable_stream.format.frame import FrameHeader, message_of
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

    Attributes:
        reading: the file that was read last.
    """

    def __init__(self, files: SideFiles, schemas: Sequence[pa.Schema]) -> None:
        self._files = files
        self._schemas = schemas
        self._batches: dict[EventKind, list[pa.RecordBatch]] = {}
        self._rows: Counter[EventKind] = Counter()
        self._where: dict[tuple[int, int, int], tuple[EventKind, int]] = {}  # the kind of each, and its row in that
        self.reading: DelayedFile | None = None

    def read_first(self, order: Sequence[tuple[Place, int]], files: Mapping[int, DelayedFile], most_bytes: int) -> int:
        """Read the first events of an order, up to the frame with which they have so many bytes in memory.

        Args:
            order: of each event its place, and the number of its file.
            files: the files, by number.
            most_bytes: the bytes.

        Returns:
            How many events of the order are there.

        Raises:
            CorruptionError: a file, which is `reading`, is damaged, or missing.
            StorageError: it can't be read now.
        """
        rows: dict[tuple[int, int], list[int]] = {}  # by file and frame, in the order in which these are needed
        for (_, offset, row), number in order:
            rows.setdefault((number, offset), []).append(row)
        offsets: dict[int, list[int]] = {}
        for number, offset in rows:
            offsets.setdefault(number, []).append(offset)
        with ExitStack() as stack:
            frames: dict[int, Generator[tuple[FrameHeader, pa.Buffer]]] = {}
            for (number, offset), wanted in rows.items():
                if most_bytes <= 0:
                    break
                self.reading = file = files[number]
                if number not in frames:
                    frames[number] = stack.enter_context(closing(self._files.puts(file, offsets[number])))
                most_bytes -= self._add(file, offset, next(frames[number]), wanted)
        found = ((number, offset, row) in self._where for (_, offset, row), number in order)
        return sum(takewhile(bool, found))

    def _add(self, file: DelayedFile, offset: int, frame: tuple[FrameHeader, pa.Buffer], rows: Sequence[int]) -> int:
        """Add rows of a frame that was read, and return their size in memory, in bytes."""
        header, payload = frame
        kind = EventKind(header.schema_id, header.ttl_us)
        if kind.schema_id >= len(self._schemas):
            raise self._files.damaged(file, offset)
        batch = decode_batch(message_of(header, payload), self._schemas[kind.schema_id])
        if len(rows) < batch.num_rows:
            batch = batch.take(pa.array(rows, pa.int64()))  # it does not hold the others
        self._batches.setdefault(kind, []).append(batch)
        self._where.update({(file.number, offset, row): (kind, self._rows[kind] + i) for i, row in enumerate(rows)})
        self._rows[kind] += len(rows)
        return int(batch.nbytes)

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
