"""A streaming Arrow writer for Spark 4.0, which hands a sink rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spillable_stream.spark.sink import compat
from spillable_stream.spark.sink.compat import DataSourceStreamArrowWriter

SCHEMA = StructType([StructField("n", LongType()), StructField("s", StringType())])


class Writer(DataSourceStreamArrowWriter):
    """A sink that is written for batches."""

    def __init__(self) -> None:
        self._schema = SCHEMA
        self.batches: list[pa.RecordBatch] = []

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        self.batches += iterator
        return "done"


class Special(Writer):
    """A sink that is a little different from another."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return f"{super().write(iterator)} too"


def rows(count: int) -> Iterator[Row]:
    return (Row(n=i, s=str(i) if i % 2 else None) for i in range(count))


def test_a_sink_gets_its_rows_as_batches_of_sparks_arrow_schema() -> None:
    writer = Writer()
    assert writer.write(rows(3)) == "done"
    (batch,) = writer.batches
    assert batch.schema.equals(pa.schema([("n", pa.int64()), ("s", pa.string())]))
    assert batch.to_pylist() == [{"n": 0, "s": None}, {"n": 1, "s": "1"}, {"n": 2, "s": None}]


def test_rows_come_in_batches_that_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_ROWS", 4)
    writer = Writer()
    writer.write(rows(10))
    assert [batch.num_rows for batch in writer.batches] == [4, 4, 2]
    assert [n for batch in writer.batches for n in batch.column("n").to_pylist()] == list(range(10))


def test_rows_are_not_read_before_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's rows need not fit into memory."""
    monkeypatch.setattr(compat, "_ROWS", 2)
    read: list[int] = []

    class First(DataSourceStreamArrowWriter):
        _schema = SCHEMA

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            return next(iterator).num_rows

    assert First().write(read.append(i) or row for i, row in enumerate(rows(10))) == 2
    assert read == [0, 1]


def test_of_no_rows_there_is_no_batch() -> None:
    writer = Writer()
    writer.write(rows(0))
    assert writer.batches == []


def test_what_inherits_from_a_sink_is_not_given_batches_of_batches() -> None:
    writer = Special()
    assert writer.write(rows(3)) == "done too"
    assert [batch.num_rows for batch in writer.batches] == [3]
