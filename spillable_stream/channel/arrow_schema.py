"""The schemas that a channel may be given."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.errors import SchemaError

__all__ = ["SparkSchema", "as_arrow_schema"]


class SparkSchema(Protocol):
    """The part of a Spark ``StructType`` by which it is recognized."""

    def fieldNames(self) -> list[str]:
        """Return the columns' names."""


def as_arrow_schema(schema: pa.Schema | SparkSchema) -> pa.Schema:
    """Return a schema as Arrow's.

    Args:
        schema: a `pyarrow.Schema`, or a Spark ``StructType``.

    Raises:
        SchemaError: it is neither, is empty, or uses a reserved or repeated column name.
    """
    if not isinstance(schema, pa.Schema):
        if not hasattr(schema, "fieldNames"):
            raise SchemaError(
                f"a schema must be a pyarrow.Schema or a Spark StructType, not {type(schema).__name__}: make one with "
                "pyarrow.schema([('sku', pyarrow.string()), …]), of a data frame with pyarrow.Schema.from_pandas(frame)"
            )
        schema = _from_spark(schema)
    if len(schema) == 0 or len(set(schema.names)) != len(schema):
        raise SchemaError(f"a schema must have columns with different names, not {schema.names}")
    if ID_COLUMN in schema.names:
        raise SchemaError(f"the column name {ID_COLUMN!r} is taken by the channel itself; rename it")
    return schema


def _from_spark(schema: SparkSchema) -> pa.Schema:
    from spillable_stream.spark.schema import arrow_schema

    return arrow_schema(schema)
