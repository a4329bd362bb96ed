"""A streaming Arrow writer for Spark 4.0, which hands a sink rows rather than batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spillable_stream.spark.schema import arrow_schema

__all__ = ["DataSourceStreamArrowWriter"]

_ROWS = 10_000


class DataSourceStreamArrowWriter(DataSourceStreamWriter):
    """Has the shape of the class of the same name in Spark 4.1 and later."""

    _schema: StructType

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if DataSourceStreamArrowWriter not in cls.__bases__:
            return  # what it inherits, and so what it calls, takes rows already
        of_batches = cls.write

        def write(self: DataSourceStreamArrowWriter, iterator: Iterator[Row]) -> WriterCommitMessage:
            return of_batches(self, _batches(iterator, self._schema))

        type.__setattr__(cls, "write", write)


def _batches(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of Spark's Arrow schema."""
    from pyspark.sql.conversion import LocalDataToArrowConversion

    while chunk := list(islice(rows, _ROWS)):
        table = LocalDataToArrowConversion.convert(chunk, schema, False)
        yield from table.cast(arrow_schema(schema)).to_batches()
