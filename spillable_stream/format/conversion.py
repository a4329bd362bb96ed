"""Converts columns to another type, nested ones too."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.format.types import WITHOUT_VIEWS, is_list, is_list_view
from spillable_stream.format.widening import is_list_for

__all__ = ["cast_column", "has_demands", "is_allowed"]


def cast_column(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Return a column as another type.

    Nested columns are rebuilt, because Arrow's own cast rejects some of them: structs whose fields are in another
    order, and null structs whose fields are not nullable, such as Spark's VARIANT.

    Raises:
        pyarrow.ArrowException: the values do not fit.
    """
    found = _converted(column, target)
    if not is_allowed(found):
        raise pa.ArrowInvalid(f"there is a null where the type {target} has none")
    return found


def _converted(column: pa.Array, target: pa.DataType) -> pa.Array:
    while pa.types.is_dictionary(column.type):
        column = _decoded(column)
    source = column.type
    if source.equals(target):
        return column
    if pa.types.is_null(source):
        return pa.nulls(len(column), target)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct(column, target)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _map(column, target)
    if is_list_for(source, target):
        return _list(column, target)
    return column.cast(target)


def _decoded(column: pa.DictionaryArray) -> pa.Array:
    """Return a dictionary column as its values; Arrow's cast supports few value types."""
    values = column.dictionary
    plain = WITHOUT_VIEWS.get(values.type)
    return (values if plain is None else values.cast(plain)).take(column.indices)


def _struct(column: pa.StructArray, target: pa.StructType) -> pa.Array:
    """Return a struct column with the fields of another struct, matched by name; missing fields are null."""
    rows, children = len(column), []
    for field in target:
        i = column.type.get_field_index(field.name)
        children.append(pa.nulls(rows, field.type) if i < 0 else _converted(column.field(i), field.type))
    validity = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(target, rows, [validity], column.null_count, 0, children)


def _map(column: pa.MapArray, target: pa.MapType) -> pa.Array:
    children = [_converted(column.keys, target.key_type), _converted(column.items, target.item_type)]
    entries = pa.Array.from_buffers(target.field(0).type, len(column.keys), [None], 0, 0, children)
    return _with_values(column, target, 2, entries)


def _list(column: pa.Array, target: pa.DataType) -> pa.Array:
    values, source = _converted(column.values, target.value_type), column.type
    if is_list_view(source):  # validity, offsets and sizes
        return _with_values(column, target, 3, values)
    if pa.types.is_fixed_size_list(source):
        same_kind = pa.list_(target.value_field, source.list_size)
        found = _with_values(column, same_kind, 1, values)
    else:
        same_kind = (pa.list_ if pa.types.is_list(source) else pa.large_list)(target.value_field)
        found = _with_values(column, same_kind, 2, values)
    return found if same_kind.equals(target) else found.cast(target)


def _with_values(column: pa.Array, target: pa.DataType, own: int, values: pa.Array) -> pa.Array:
    """Return a column of lists or maps with its values replaced.

    Args:
        column: the lists or maps.
        target: the type of the result.
        own: how many buffers this kind of list has itself, without those of its values.
        values: all values, also those outside a slice.
    """
    return pa.Array.from_buffers(
        target, len(column), column.buffers()[:own], column.null_count, column.offset, [values]
    )


# ── nulls ───────────────────────────────────────────────────────────────────────────────────


def is_allowed(column: pa.Array) -> bool:
    """Tell whether a column has no null where its type forbids one. Inside a null parent, nulls are allowed."""
    t = column.type
    if not len(column) or not has_demands(t):
        return True
    if pa.types.is_struct(t):
        valid = column.is_valid()
        parts = [(f, child.filter(valid)) for f, child in zip(t, column.flatten(), strict=True)]
    elif pa.types.is_map(t):
        offsets = column.offsets
        start, end = offsets[0].as_py(), offsets[-1].as_py()
        parts = [(t.key_field, column.keys[start:end]), (t.item_field, column.items[start:end])]
    else:
        parts = [(t.value_field, column.flatten())]
    return all((field.nullable or not inside.null_count) and is_allowed(inside) for field, inside in parts)


def has_demands(t: pa.DataType) -> bool:
    """Tell whether a type forbids nulls anywhere inside, apart from the keys of maps, which are never null."""
    if pa.types.is_struct(t):
        return any(not f.nullable or has_demands(f.type) for f in t)
    if pa.types.is_map(t):
        return not t.item_field.nullable or has_demands(t.key_type) or has_demands(t.item_type)
    if is_list(t) or is_list_view(t) or pa.types.is_fixed_size_list(t):
        return not t.value_field.nullable or has_demands(t.value_type)
    return False
