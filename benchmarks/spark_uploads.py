"""A Python data source over plain objects: its tasks upload their rows with nothing around them, and read them so.

What the same tasks, with the same client, can do in the same store: the floor of the channel's source and sink there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from spillable_stream.objects.location import Location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.store import Store
from spillable_stream.spark.schema import arrow_schema

__all__ = ["NAME", "UploadSource"]

NAME = "uploads"
_PARTS = "parts/"
_WINDOW_BYTES = 8 << 20  # as the channel's reader


class UploadSource(DataSource):
    """Options of the source: ``path``, where the objects are."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> Any:
        """Return the columns of the first object."""
        from pyspark.sql.pandas.types import from_arrow_schema

        store = _store(self.options["path"])
        first = next(iter(store.list(_PARTS)))
        return from_arrow_schema(pa.ipc.open_stream(pa.py_buffer(store.get(first.key))).schema)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the source."""
        return _Source(self.options["path"], arrow_schema(schema))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """Return the sink."""
        return _Sink(self.options["path"])


@dataclass
class _Uploaded(WriterCommitMessage):
    key: str


class _Sink(DataSourceArrowWriter):
    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        key = f"{_PARTS}{uuid.uuid4().hex}"
        upload = _store(self._path).upload(key)
        is_first = True
        for batch in iterator:
            if is_first:
                upload.write(batch.schema.serialize())
            is_first = False
            upload.write(batch.serialize())
        upload.finish()
        return _Uploaded(key)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        keys = [message.key for message in messages if isinstance(message, _Uploaded)]
        assert _store(self._path).create("commit", "\n".join(keys).encode())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class _Source(DataSourceReader):
    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(key) for key in bytes(_store(self._path).get("commit")).decode().split("\n")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store, key = _store(self._path), str(partition.value)
        windows, offset = list[bytes](), 0
        while window := bytes(store.get_range(key, offset, offset + _WINDOW_BYTES)):
            windows.append(window)
            offset += len(window)
        for batch in pa.ipc.open_stream(pa.py_buffer(b"".join(windows))):
            yield batch.cast(self._schema)  # to what Spark calls nullable


def _store(path: str) -> Store:
    return open_store(Location.parse(path))
