"""Which Arrow types a channel stores, and how: every event that was put can be taken, and is equal.

A dictionary (a categorical of pandas) is stored as its values: a frame is one message, but Arrow writes a dictionary
as a separate message. A type that some readers could not read is refused, with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from spillable_stream.errors import SchemaError

__all__ = [
    "NOT_ARROW",
    "WITHOUT_VIEWS",
    "check_field",
    "has_dictionary",
    "has_extension",
    "is_list",
    "is_list_view",
    "leaves",
    "stored_schema",
    "with_leaves",
]

NOT_ARROW = (pa.ArrowException, ArithmeticError, EOFError, OSError, LookupError, TypeError, ValueError)
"""Exceptions that Arrow raises for invalid bytes or values, also for one that Python has no object for."""

WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Types to cast a dictionary's values to first, because Arrow's `take` does not support views."""


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with each type replaced by the one that a channel stores."""
    if not any(has_dictionary(f.type) for f in schema):
        return schema
    return pa.schema([_stored_field(f) for f in schema], schema.metadata)


def _stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(_stored_type(field.type))


def _stored_type(t: pa.DataType) -> pa.DataType:
    """Return a type with each dictionary replaced by its values' type, where Arrow can convert such a column."""

    def plain(leaf: pa.DataType) -> pa.DataType:
        if not pa.types.is_dictionary(leaf):
            return leaf
        values = _stored_type(leaf.value_type)
        return WITHOUT_VIEWS.get(values, values)

    return with_leaves(t, plain)


def with_leaves(t: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with its leaves replaced: all types in it but structs, maps and lists.

    Args:
        t: the type.
        leaf: returns the replacement of a leaf.
    """

    def inside(field: pa.Field) -> pa.Field:
        return field.with_type(with_leaves(field.type, leaf))

    if pa.types.is_struct(t):
        return pa.struct([inside(f) for f in t])
    if pa.types.is_map(t):
        return pa.map_(inside(t.key_field), inside(t.item_field), keys_sorted=t.keys_sorted)
    if pa.types.is_fixed_size_list(t):
        return pa.list_(inside(t.value_field), t.list_size)
    if is_list(t):
        return (pa.list_ if pa.types.is_list(t) else pa.large_list)(inside(t.value_field))
    return leaf(t)


def leaves(t: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types in a type that have none inside; itself, if it has none."""
    inner = _inner(t)
    if not inner:
        yield t
    for found in inner:
        yield from leaves(found)


def has_dictionary(t: pa.DataType) -> bool:
    """Tell whether a type contains a dictionary at any depth."""
    return pa.types.is_dictionary(t) or any(has_dictionary(inner) for inner in _inner(t))


def has_extension(t: pa.DataType) -> bool:
    """Tell whether a type contains an extension type at any depth."""
    return isinstance(t, pa.BaseExtensionType) or any(has_extension(inner) for inner in _inner(t))


def _inner(t: pa.DataType) -> list[pa.DataType]:
    """Return the types directly inside a type."""
    if isinstance(t, pa.BaseExtensionType):
        return [t.storage_type]
    if pa.types.is_run_end_encoded(t):
        return [t.value_type]
    return [f.type for f in _fields(t)]


def _fields(t: pa.DataType) -> list[pa.Field]:
    return [t.field(i) for i in range(t.num_fields)]


def is_list(t: pa.DataType) -> bool:
    """Tell whether a type is a list of variable length, with offsets."""
    return bool(pa.types.is_list(t) or pa.types.is_large_list(t))


def is_list_view(t: pa.DataType) -> bool:
    """Tell whether a type is a list view: a list of variable length, with offsets and sizes."""
    return bool(pa.types.is_list_view(t) or pa.types.is_large_list_view(t))


def check_field(field: pa.Field) -> None:
    """Check that events can be taken again after they are put into this column of a `stored_schema`.

    Raises:
        SchemaError: they can't; says why.
    """
    where = f"the column {field.name!r} has the type {field.type}, "
    if why := _refusal(field.type):
        raise SchemaError(f"{where}{why}")
    try:
        empty = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], ["c"])
        schema = pa.ipc.read_schema(empty.schema.serialize())
        found = pa.ipc.read_record_batch(empty.serialize(), schema)
        found.validate(full=True)
        whole = found.equals(empty)
    except NOT_ARROW as e:
        raise SchemaError(f"{where}which Arrow can't write and read back ({e}); convert it, or leave it out") from e
    if not whole:
        raise SchemaError(f"{where}which Arrow does not read back as it was; convert it, or leave it out")


def _refusal(t: pa.DataType) -> str:
    """Return why a type is not supported; "" if it is."""
    if pa.types.is_null(t):
        return (
            "which holds nothing but nulls, and a column's type can't be changed; cast it to the type that it will "
            "hold, or leave it out"
        )
    if pa.types.is_union(t):
        return "and unions are not stored: neither Spark nor every version of pyarrow reads them; use a struct"
    if pa.types.is_dictionary(t):
        return "with a dictionary inside that can't be replaced by its values; convert it before"
    if pa.types.is_struct(t) and len({f.name for f in t}) < t.num_fields:
        return "a struct with a name that occurs twice, which does not fit a Python dictionary; rename one"
    if pa.types.is_timestamp(t) and t.tz is not None and not _is_known_zone(t):
        return f"and this machine does not know the time zone {t.tz!r}; convert it to UTC"
    return next((why for inner in _inner(t) if (why := _refusal(inner))), "")


def _is_known_zone(t: pa.DataType) -> bool:
    try:
        pa.Array.from_buffers(t, 1, [None, pa.py_buffer(bytes(8))]).to_pylist()
    except (LookupError, ValueError, OSError):
        return False
    return True
