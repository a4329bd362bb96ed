"""Which Arrow types a channel stores, and as what: whatever is put can be taken back, and is equal.

A dictionary (a categorical of pandas) is stored as its values: a frame is one message, and Arrow writes
dictionaries as messages of their own. What can't be taken back by everybody is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spillable_stream.errors import SchemaError

__all__ = [
    "NOT_ARROW",
    "WITHOUT_VIEWS",
    "check_field",
    "has_dictionary",
    "is_list",
    "is_list_view",
    "stored_schema",
    "with_leaves",
]

NOT_ARROW = (pa.ArrowException, EOFError, OSError, LookupError, TypeError, ValueError)
"""What Arrow raises for bytes or values that are not what they should be."""

WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Of a dictionary's values that are views Arrow takes nothing by index."""


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types that a channel stores."""
    if not any(has_dictionary(f.type) for f in schema):
        return schema
    return pa.schema([_stored_field(f) for f in schema], schema.metadata)


def _stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(_stored_type(field.type))


def _stored_type(t: pa.DataType) -> pa.DataType:
    """Return a type with the values' type for every dictionary in it, as far as Arrow can convert such a column."""

    def plain(leaf: pa.DataType) -> pa.DataType:
        if not pa.types.is_dictionary(leaf):
            return leaf
        values = _stored_type(leaf.value_type)
        return WITHOUT_VIEWS.get(values, values)

    return with_leaves(t, plain)


def with_leaves(t: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with others for those in it that are no struct, map or list.

    Args:
        t: the type.
        leaf: returns what each of these becomes.
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


def has_dictionary(t: pa.DataType) -> bool:
    """Tell whether there is a dictionary anywhere in a type."""
    return pa.types.is_dictionary(t) or any(has_dictionary(inner) for inner in _inner(t))


def _inner(t: pa.DataType) -> list[pa.DataType]:
    """Return the types that a type is made of."""
    if isinstance(t, pa.BaseExtensionType):
        return [t.storage_type]
    if pa.types.is_run_end_encoded(t):
        return [t.value_type]
    return [f.type for f in _fields(t)]


def _fields(t: pa.DataType) -> list[pa.Field]:
    return [t.field(i) for i in range(t.num_fields)]


def is_list(t: pa.DataType) -> bool:
    """Tell whether a type is a list of any length, with offsets."""
    return bool(pa.types.is_list(t) or pa.types.is_large_list(t))


def is_list_view(t: pa.DataType) -> bool:
    """Tell whether a type is a list of any length, with offsets and sizes."""
    return bool(pa.types.is_list_view(t) or pa.types.is_large_list_view(t))


def check_field(field: pa.Field) -> None:
    """Check that what is put into a column of this type, as `stored_schema` has it, can be taken back.

    Raises:
        SchemaError: it can't.
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
    """Return why a type is not stored, "" if it is."""
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
