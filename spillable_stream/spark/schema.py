"""Between Spark's schemas and the channel's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA, shown_schema
from spillable_stream.spark.metadata import METADATA_TYPES, check_names_are_free, without_metadata
from spillable_stream.spark.types import misread, type_in_spark

__all__ = ["arrow_schema", "check_read_schema", "creation_schema", "naming", "of_set_member", "struct_type"]

# What marks the structs of a variant, geometry or geography, among the metadata of a part. No part is ever null, and
# pyarrow before 20 can't cast a struct back once its parts were nullable.
_SPARKS_STRUCTS = {b"variant", b"geometry", b"geography"}

_NOT_IN_ARROW = (PySparkException, ValueError)  # the second for nulls that can't be null, as those of `array()`


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark demands of batches with this ``StructType``, bit for bit.

    Raises:
        SchemaError: Arrow has no type for a column's values.
    """
    try:
        return _to_arrow(schema)
    except _NOT_IN_ARROW:
        for field in schema:
            _require_arrow(field)
        raise


def _require_arrow(field: StructField) -> None:
    try:
        _to_arrow(StructType([field]))
    except _NOT_IN_ARROW as e:
        raise SchemaError(
            f"the column {field.name!r} has the type {field.dataType.simpleString()}, which Spark can't exchange with "
            "Python: cast it to another, or leave it out"
        ) from e


def _to_arrow(schema: StructType) -> pa.Schema:
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.3 the zone was always UTC
        return to_arrow_schema(schema)


def struct_type(schema: pa.Schema) -> StructType:
    """Return a channel's schema as Spark's.

    Raises:
        SchemaError: this Spark has no type for a column's values.
    """
    fields = [f.with_type(type_in_spark(f.type, f.name)) for f in schema]
    for field in fields:
        try:
            _to_arrow(from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True))
        except (PySparkException, NotImplementedError, TypeError, ValueError) as e:
            raise SchemaError(
                f"the column {field.name!r} has the type {schema.field(field.name).type}, for which this version of "
                f"Spark has none: give the read a schema that does without it ({e})"
            ) from e
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)


def _stored_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a new channel for rows of a Spark schema.

    Everything is nullable, as in Spark's own file sources: what one query never leaves out, a
    later one may.
    """
    return pa.schema([pa.field(f.name, _nullable(f.type), metadata=f.metadata) for f in arrow_schema(schema)])


def _nullable(t: pa.DataType) -> pa.DataType:
    """Return a type with every value in it nullable, but for the keys of maps and the parts of Spark's own structs."""
    if pa.types.is_struct(t):
        if any(_SPARKS_STRUCTS & set(f.metadata or ()) for f in t):
            return t
        return pa.struct([pa.field(f.name, _nullable(f.type), metadata=f.metadata) for f in t])
    if pa.types.is_list(t):
        return pa.list_(pa.field(t.value_field.name, _nullable(t.value_type), metadata=t.value_field.metadata))
    if pa.types.is_map(t):
        key = pa.field(t.key_field.name, _nullable(t.key_type), nullable=False)
        return pa.map_(key, pa.field(t.item_field.name, _nullable(t.item_type)), keys_sorted=t.keys_sorted)
    return t


def creation_schema(schema: StructType) -> pa.Schema | None:
    """Return what `Channel` needs to create a channel of these rows: None for an event channel."""
    stored = _stored_schema(schema)
    is_event = set(stored.names) == set(EVENT_SCHEMA.names) and all(
        f.type.equals(EVENT_SCHEMA.field(f.name).type) for f in stored
    )
    return None if is_event else stored


def check_read_schema(schema: StructType, channel: pa.Schema, columns: Mapping[str, DataType]) -> None:
    """Check that a channel can be read with a schema.

    Args:
        schema: the schema that Spark was given, or that it was told.
        channel: the channel's.
        columns: the metadata columns of the read.

    Raises:
        SchemaError: it names a column that the channel does not have, or has of a type that does not fit into Spark's;
            or the channel has a column that is named like a metadata column, and these are asked for.
    """
    check_names_are_free(channel.names, columns)
    own = arrow_schema(without_metadata(schema, columns))
    for name in own.names:
        if name not in channel.names:
            hint = "; set the option metadata to true for it" if name in METADATA_TYPES else ""
            raise SchemaError(f"the channel has no column {name!r}; it has {', '.join(channel.names)}{hint}")
    for field in schema.fields:
        wanted = columns.get(field.name)
        if wanted is not None and field.dataType != wanted:
            raise SchemaError(f"the metadata column {field.name!r} has the type {wanted.simpleString()}")
    for field in own:
        if why := misread(channel.field(field.name).type, field.type, field.name):
            raise SchemaError(f"{why}. The channel has ({shown_schema(channel)}); the read wants ({shown_schema(own)})")


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Let an error of a channel's columns say which channel it is: a query may read several."""
    try:
        yield
    except SchemaError as e:
        raise SchemaError(f"{path}: {e}") from None


def of_set_member(error: SchemaError) -> SchemaError:
    """Return the error of a channel of a set whose columns are not those of the read, with what to do."""
    return SchemaError(
        f"{error}. All channels of a set have to have the columns of the read: give it a schema of those that "
        "they share, or read the channel by itself"
    )
