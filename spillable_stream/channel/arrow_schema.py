"""The schemas that a channel may be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.errors import SchemaError

__all__ = ["SparkSchema", "as_arrow_schema", "convert_spark_schemas"]


class SparkSchema(Protocol):
    """What of a Spark ``StructType`` tells it from everything else."""

    def fieldNames(self) -> list[str]:
        """Return the columns' names."""


_spark_converter: Callable[[SparkSchema], pa.Schema] | None = None


def convert_spark_schemas(convert: Callable[[SparkSchema], pa.Schema]) -> None:
    """Say how a Spark ``StructType`` becomes an Arrow schema: `spillable_stream.spark` knows, and this room does not.

    Args:
        convert: the function.
    """
    global _spark_converter
    _spark_converter = convert


def as_arrow_schema(schema: pa.Schema | SparkSchema) -> pa.Schema:
    """Return a schema as Arrow's.

    Args:
        schema: a `pyarrow.Schema`, or a Spark ``StructType``.

    Raises:
        SchemaError: it is neither, is empty, or uses a reserved or repeated column name.
    """
    if not isinstance(schema, pa.Schema):
        if not hasattr(schema, "fieldNames"):
            raise SchemaError(f"a schema must be a pyarrow.Schema or a Spark StructType, not {type(schema).__name__}")
        schema = _from_spark(schema)
    if len(schema) == 0 or len(set(schema.names)) != len(schema):
        raise SchemaError(f"a schema must have columns with different names, not {schema.names}")
    if ID_COLUMN in schema.names:
        raise SchemaError(f"the column name {ID_COLUMN!r} is taken by the channel itself; rename it")
    return schema


def _from_spark(schema: SparkSchema) -> pa.Schema:
    assert _spark_converter is not None, "the package says how when it is imported"
    return _spark_converter(schema)
