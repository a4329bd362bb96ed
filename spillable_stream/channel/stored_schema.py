"""The schema that an open or a user gives to a channel that exists: new columns are stored."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.requests import Control
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import encode_schema, merge_schemas
from spillable_stream.format.frame import MAX_SCHEMAS, FrameType
from spillable_stream.format.record import SchemaRecord

__all__ = ["has_columns", "store_columns"]


def has_columns(engine: Engine, schema: pa.Schema) -> bool:
    """Tell whether a schema adds nothing to the channel's newest one, as far as the handle knows that.

    Raises:
        SchemaError: the schema does not fit.
    """
    newest = engine.schemas()[-1]
    return bool(merge_schemas(newest, schema).equals(newest))


def store_columns(engine: Engine, schema: pa.Schema) -> int:
    """Store the columns of a schema that the channel does not have, and return the number of its newest schema.

    Args:
        engine: the channel.
        schema: the schema.

    Raises:
        ReadonlyChannelError: there is such a column, and the handle only looks.
        SchemaError: the schema does not fit, or the channel can't have another one.
        StorageError: the disk or the store refused.
    """
    engine.follow()
    schemas = engine.schemas()
    merged = merge_schemas(schemas[-1], schema)
    if merged.equals(schemas[-1]):
        return len(schemas) - 1
    if not engine.is_typed():
        raise SchemaError(f"{engine.path} is an event channel (headers, body) and can't have other columns")
    if len(schemas) == MAX_SCHEMAS:
        raise SchemaError(f"{engine.path} has had {MAX_SCHEMAS:,} schemas and can have no other; make a new channel")
    if engine.log.is_view:
        engine.refuse_to_write("another column")
    added: SchemaRecord = {"id": len(schemas), "schema": encode_schema(merged)}
    engine.commit(Control(FrameType.SCHEMA, added))
    return store_columns(engine, schema)
