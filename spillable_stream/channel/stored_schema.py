"""The schema that an open or a user gives to a channel that exists: new columns are stored."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spillable_stream.engine.engine import Engine
from spillable_stream.engine.requests import Control
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import encode_schema, merge_schemas, mismatch
from spillable_stream.format.frame import MAX_SCHEMAS, FrameType
from spillable_stream.format.record import SchemaRecord
from spillable_stream.log_records import fields, log_of

__all__ = ["has_columns", "store_columns", "widened"]

_log = log_of(__name__)


def widened(path: object, schemas: Sequence[pa.Schema], schema: pa.Schema, *, typed: bool) -> pa.Schema:
    """Return a channel's newest schema with the columns that another one adds to it.

    Args:
        path: the channel.
        schemas: the schemas that it has had.
        schema: the other one.
        typed: whether it is a typed channel.

    Raises:
        SchemaError: the schema does not fit, or the channel can't have another one.
    """
    merged = merge_schemas(schemas[-1], schema)
    if not merged.equals(schemas[-1]):
        if not typed:
            raise SchemaError(
                f"{path} is an event channel (headers, body) and can't have other columns: leave them out, or put "
                "such rows into a typed channel at another path"
            )
        if len(schemas) == MAX_SCHEMAS:
            raise SchemaError(f"{path} has had {MAX_SCHEMAS:,} schemas, the most it can have; create a new channel")
    return merged


def has_columns(engine: Engine, schema: pa.Schema) -> bool:
    """Tell whether a schema adds nothing to the channel's newest one, as far as the handle knows that.

    Raises:
        SchemaError: the schema does not fit.
    """
    newest = engine.schemas()[-1]
    return bool(merge_schemas(newest, schema).equals(newest))


def store_columns(engine: Engine, schema: pa.Schema, *, whole: bool = False) -> int:
    """Store the columns of a schema that the channel does not have, and return the number of its newest schema.

    Args:
        engine: the channel.
        schema: the schema.
        whole: whether it must have all of the channel's columns, unless the channel has had it before.

    Raises:
        ReadonlyChannelError: there is such a column, and the handle only looks.
        SchemaError: the schema does not fit, or leaves out a column, or the channel can't have another one.
        StorageError: the disk or the store refused.
    """
    engine.follow()
    schemas = engine.schemas()
    merged = widened(engine.path, schemas, schema, typed=engine.is_typed())
    if whole:
        _require_whole(schemas, schema)
    if merged.equals(schemas[-1]):
        return len(schemas) - 1
    if engine.log.is_view:
        engine.refuse_to_write("another column")
    added: SchemaRecord = {"id": len(schemas), "schema": encode_schema(merged)}
    engine.commit(Control(FrameType.SCHEMA, added))
    new = ", ".join(merged.names[len(schemas[-1]) :])
    _log.info("%s has more columns, which stay: %s", engine.path, new, extra=fields(engine.path))
    return store_columns(engine, schema)


def _require_whole(schemas: Sequence[pa.Schema], schema: pa.Schema) -> None:
    """Refuse a schema that leaves out a column: columns are only added, and who gave it may believe that one is gone.

    One that the channel has had is a program's of before, which need not know what came since.
    """
    names, newest = set(schema.names), schemas[-1]
    missing = [name for name in newest.names if name not in names]
    if missing and all(names != set(had.names) for had in schemas):
        raise mismatch(
            f"the schema leaves out the column {missing[0]!r}, and no column is ever removed: give all that the "
            "channel has, and the new ones. A put may leave out nullable ones without this call",
            newest,
            schema,
        )
