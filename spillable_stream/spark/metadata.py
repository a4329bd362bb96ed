"""The metadata columns, which a read has with the option ``metadata``; of a set, one more names the channel."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.channel.taken_events import id_column
from spillable_stream.engine.port import ReadBatch
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import fit_batch

__all__ = [
    "METADATA_COLUMNS",
    "METADATA_TYPES",
    "SET_METADATA_TYPES",
    "batch_with_metadata",
    "check_names_are_free",
    "metadata_types",
    "with_metadata",
    "without_metadata",
]

_PUT_TIME = "put_time"
_CHANNEL = "channel"

_TIMESTAMP = pa.timestamp("us", tz="UTC")


def _repeated(value: int, count: int, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(array("q", [value]) * count)])


METADATA_COLUMNS: Mapping[str, Callable[[ReadBatch, str], pa.Array]] = MappingProxyType(
    {
        ID_COLUMN: lambda read, _: id_column(read),
        "transaction_id": lambda read, _: _repeated(read.transaction_id, read.batch.num_rows, pa.int64()),
        _PUT_TIME: lambda read, _: _repeated(read.time_us, read.batch.num_rows, _TIMESTAMP),
        _CHANNEL: lambda read, channel: pa.repeat(pa.scalar(channel), read.batch.num_rows),
    }
)
"""How each column is made of what was read, and of the channel's path."""

SET_METADATA_TYPES: Mapping[str, DataType] = MappingProxyType(
    {name: LongType() for name in METADATA_COLUMNS} | {_PUT_TIME: TimestampType(), _CHANNEL: StringType()}
)
"""Their types in Spark, for a set of channels."""

METADATA_TYPES: Mapping[str, DataType] = MappingProxyType(
    {name: type_ for name, type_ in SET_METADATA_TYPES.items() if name != _CHANNEL}
)
"""Those of a single channel, whose events are all of one channel."""


def metadata_types(*, is_wanted: bool, of_set: bool) -> Mapping[str, DataType]:
    """Return the metadata columns of a read, with their types in Spark.

    Args:
        is_wanted: whether the option ``metadata`` is set.
        of_set: whether a set of channels is read.
    """
    if not is_wanted:
        return MappingProxyType({})
    return SET_METADATA_TYPES if of_set else METADATA_TYPES


def check_names_are_free(names: Iterable[str], columns: Mapping[str, DataType]) -> None:
    """Check that a channel's columns leave the metadata columns their names, whatever the case.

    Args:
        names: the channel's columns.
        columns: the metadata columns of the read.

    Raises:
        SchemaError: the channel has a column of such a name.
    """
    taken = {name.lower() for name in names} & columns.keys()
    if taken:
        raise SchemaError(
            f"the channel has a column {min(taken)!r} of its own, which the option metadata would add; "
            "read it without the option"
        )


def with_metadata(schema: StructType, columns: Mapping[str, DataType]) -> StructType:
    """Return a channel's schema with a read's metadata columns after its own.

    Raises:
        SchemaError: the channel has a column of such a name.
    """
    check_names_are_free(schema.fieldNames(), columns)
    return StructType([*schema.fields, *(StructField(n, t, False) for n, t in columns.items())])


def without_metadata(schema: StructType, columns: Mapping[str, DataType]) -> StructType:
    """Return what a read's schema has of the channel's own columns, without the read's metadata columns."""
    return StructType([f for f in schema.fields if f.name not in columns])


def batch_with_metadata(
    read: ReadBatch, schema: pa.Schema, metadata: frozenset[str], channel: str = ""
) -> pa.RecordBatch:
    """Return what was read as a batch of exactly ``schema``.

    Args:
        read: the events.
        schema: the columns that Spark expects.
        metadata: which of them are metadata columns.
        channel: the channel's path.
    """
    if not metadata:
        return fit_batch(read.batch, schema)
    own = pa.schema([f for f in schema if f.name not in metadata])
    columns = dict(zip(own.names, fit_batch(read.batch, own).columns, strict=True))
    columns |= {name: METADATA_COLUMNS[name](read, channel) for name in metadata}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
