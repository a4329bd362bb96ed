"""The metadata columns, which a read has with the option ``metadata``."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from spillable_stream.channel.event import ID_COLUMN, id_column
from spillable_stream.engine.port import ReadBatch
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import fit_batch

__all__ = [
    "METADATA_COLUMNS",
    "METADATA_TYPES",
    "batch_with_metadata",
    "check_names_are_free",
    "with_metadata",
    "without_metadata",
]

_PUT_TIME = "put_time"

_TIMESTAMP = pa.timestamp("us", tz="UTC")


def _repeated(value: int, count: int, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(array("q", [value]) * count)])


METADATA_COLUMNS: dict[str, Callable[[ReadBatch], pa.Array]] = {
    ID_COLUMN: id_column,
    "transaction_id": lambda read: _repeated(read.transaction_id, read.batch.num_rows, pa.int64()),
    _PUT_TIME: lambda read: _repeated(read.time_us, read.batch.num_rows, _TIMESTAMP),
}
"""How each column is made of what was read."""

METADATA_TYPES = {name: LongType() for name in METADATA_COLUMNS} | {_PUT_TIME: TimestampType()}
"""Their types in Spark."""


def check_names_are_free(names: Iterable[str]) -> None:
    """Check that a channel's columns leave the metadata columns their names, whatever the case.

    Args:
        names: the channel's columns.

    Raises:
        SchemaError: the channel has a column of such a name.
    """
    taken = {name.lower() for name in names} & METADATA_COLUMNS.keys()
    if taken:
        raise SchemaError(
            f"the channel has a column {min(taken)!r} of its own, which the option metadata would add; "
            "read it without the option"
        )


def with_metadata(schema: StructType) -> StructType:
    """Return a channel's schema with the metadata columns after its own.

    Raises:
        SchemaError: the channel has a column of such a name.
    """
    check_names_are_free(schema.fieldNames())
    return StructType([*schema.fields, *(StructField(n, t, False) for n, t in METADATA_TYPES.items())])


def without_metadata(schema: StructType, metadata: bool) -> StructType:
    """Return what a read's schema has of the channel's own columns, the option ``metadata`` being given or not."""
    return StructType([f for f in schema.fields if not (metadata and f.name in METADATA_COLUMNS)])


def batch_with_metadata(read: ReadBatch, schema: pa.Schema, metadata: frozenset[str]) -> pa.RecordBatch:
    """Return what was read as a batch of exactly ``schema``.

    Args:
        read: the events.
        schema: the columns that Spark expects.
        metadata: which of them are metadata columns.
    """
    if not metadata:
        return fit_batch(read.batch, schema)
    own = pa.schema([f for f in schema if f.name not in metadata])
    columns = dict(zip(own.names, fit_batch(read.batch, own).columns, strict=True))
    columns |= {name: METADATA_COLUMNS[name](read) for name in metadata}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
