"""Staged segments of numbers."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.format.batch import encode_batch
from spillable_stream.format.extent import Extent
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.filesystem import FileSystem

SCHEMA = pa.schema([("x", pa.int64())])


def numbers(first: int, count: int) -> pa.RecordBatch:
    """Return a batch of so many numbers."""
    return pa.record_batch({"x": pa.array(range(first, first + count), pa.int64())}, SCHEMA)


def stage(fs: FileSystem, layout: Layout, first: int, count: int, owner: str = "query", batch: int = 1) -> str:
    """Stage so many numbers, close the segment, and return its name."""
    writer = StagedFileWriter(fs, layout, owner, batch)
    writer.write(encode_batch(numbers(first, count)))
    writer.finish()
    writer.close()
    return writer.name


def staged(fs: FileSystem, layout: Layout, name: str, count: int) -> list[int]:
    """Read so many numbers of a segment."""
    reader = EventReader(fs, layout, lambda _: SCHEMA)
    try:
        found = reader.read(Extent(name, 0, 0, count - 1, 0, 1, 1))
        return [x for read in found for x in read.batch.column(0).to_pylist()]
    finally:
        reader.close()
