"""Between Spark's schemas and the channel's."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spillable_stream.channel.channel import spark_arrow_schema as arrow_schema
from spillable_stream.errors import SchemaError

__all__ = ["arrow_schema", "stored_schema", "struct_type", "wanted_schema"]


def struct_type(schema: pa.Schema) -> StructType:
    """Return a channel's schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def stored_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a new channel for rows of a Spark schema.

    Everything is nullable, as in Spark's own file sources: what one query never leaves out, a
    later one may.
    """
    return pa.schema([pa.field(f.name, _nullable(f.type), metadata=f.metadata) for f in arrow_schema(schema)])


def _nullable(t: pa.DataType) -> pa.DataType:
    """Return a type with every value in it nullable, but for the keys of maps."""
    if pa.types.is_struct(t):
        return pa.struct([pa.field(f.name, _nullable(f.type), metadata=f.metadata) for f in t])
    if pa.types.is_list(t):
        return pa.list_(pa.field(t.value_field.name, _nullable(t.value_type), metadata=t.value_field.metadata))
    if pa.types.is_map(t):
        key = pa.field(t.key_field.name, _nullable(t.key_type), nullable=False)
        return pa.map_(key, pa.field(t.item_field.name, _nullable(t.item_type)), keys_sorted=t.keys_sorted)
    return t


def wanted_schema(schema: StructType, channel: pa.Schema) -> pa.Schema:
    """Return the Arrow schema to read a channel with, for a schema that Spark was given.

    Raises:
        SchemaError: it names a column that the channel does not have.
    """
    for name in schema.fieldNames():
        if name not in channel.names:
            raise SchemaError(f"the channel has no column {name!r}; it has {', '.join(channel.names)}")
    return arrow_schema(schema)
