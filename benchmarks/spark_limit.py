"""A Python data source that does nothing: as a source one batch again and again, as a sink no write at all.

What Spark itself takes to pass rows to and from Python, so the limit of every source and sink in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

__all__ = ["NAME", "LimitSource", "write_batch"]

NAME = "limit"
_TASKS = 2  # one a core
_BATCH_BYTES = 256 << 10  # as the channel's source


def write_batch(path: Path, rows: pa.RecordBatch) -> None:
    """Keep as many of the rows as one batch has, for the source."""
    count = max(1, rows.num_rows * _BATCH_BYTES // rows.nbytes)
    batch = rows.slice(0, count)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(pa.ipc.read_record_batch(batch.serialize(), batch.schema))  # without what the slice left out


class LimitSource(DataSource):
    """Options of the source: ``batch``, a file of `write_batch`, and ``rows``, how many a micro-batch has."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the source."""
        return _Source(self.options)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the sink."""
        return _Sink()


class _Source(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._path, self._rows = options["batch"], int(options["rows"])

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        return {"rows": (start or {"rows": 0})["rows"] + self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((end["rows"] - start["rows"]) // _TASKS) for _ in range(_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._path) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        left: int = partition.value
        while left:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)


class _Sink(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass
