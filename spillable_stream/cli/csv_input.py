"""CSV as a load's input."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa

from spillable_stream.cli.input_source import CHUNK_BYTES, InputSource, Joined, SourceInput, read_batches, without_nulls
from spillable_stream.errors import SchemaError

__all__ = ["CsvInput"]


class CsvInput(SourceInput):
    """CSV with a line of names; its first block decides the types of the columns.

    Args:
        source: the bytes.
        schema: the columns; None to infer them.

    Raises:
        SchemaError: the names are not UTF-8.
    """

    schema: pa.Schema

    def __init__(self, source: InputSource, schema: pa.Schema | None) -> None:
        super().__init__(source)
        self._beginning = b""
        self.schema = self._inferred() if schema is None else schema

    def _inferred(self) -> pa.Schema:
        while len(self._beginning) < CHUNK_BYTES and (data := self._source.read(CHUNK_BYTES)):
            self._beginning += data
        complete = self._beginning[: self._beginning.rfind(b"\n") + 1] or self._beginning
        # Not a file of Python's: a thread that reads ahead of an error would be in Python as that ends, and abort it.
        schema = _csv_reader(pa.BufferReader(complete), None).schema
        try:
            return without_nulls(pa.schema([(f.name, f.type) for f in schema]))
        except UnicodeDecodeError as e:
            raise SchemaError(
                f"{self._source.name} can't be read as csv: its columns' names are not UTF-8; convert it"
            ) from e

    def fit(self, schema: pa.Schema) -> None:
        """Read with the types of a channel's columns; see `Input.fit`."""
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `Input.batches`."""

        def read() -> Iterator[pa.RecordBatch]:
            yield from _csv_reader(Joined(self._beginning, self._source), self.schema)

        yield from read_batches(read(), self._source.name, "CSV")


def _csv_reader(file: pa.NativeFile | io.RawIOBase, schema: pa.Schema | None) -> pa.RecordBatchReader:
    """Return a reader of CSV whose columns are of a schema's types, or of those that the first block suggests."""
    from pyarrow import csv

    types = None if schema is None else {field.name: field.type for field in schema}
    return csv.open_csv(
        file,
        csv.ReadOptions(use_threads=False, block_size=CHUNK_BYTES),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False),
    )
