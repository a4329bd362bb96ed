"""Readers of every Arrow type: they check and copy Python values in one pass.

`reader_of` builds the functions for a type once. Their results share no mutable object with the application, and
Arrow converts them without errors. Arrow alone is too lenient (it accepts True for 1.0, a string for bytes, unknown
fields of a struct), and crashes on some unexpected values.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, ValuesView
from typing import Any

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.format.types import is_list, is_list_view
from spillable_stream.format.value_flat import number_reader, text_reader
from spillable_stream.format.value_leaf import GC_HEAD_BYTES, ColumnPath, ValueReader, is_arrow_null, leaf, native
from spillable_stream.format.value_times import time_reader

__all__ = ["fields_reader", "reader_of"]

_NOT_LISTS = (str, bytes, bytearray, memoryview, Mapping)


def reader_of(t: pa.DataType, path: str) -> ValueReader:
    """Return the reader of a type.

    Args:
        t: the type.
        path: the name of the column, or of a part of it, for messages.
    """
    found = number_reader(t, path) or text_reader(t, path) or time_reader(t, path) or _nested_reader(t, path)
    if found is not None:
        return found
    return leaf(ColumnPath(path, t, "no Python objects, only Arrow's: put_batch, send_batch"), lambda value: None, 0)


def _nested_reader(t: pa.DataType, path: str) -> ValueReader | None:
    if pa.types.is_struct(t):
        return _structs(t, path)
    if pa.types.is_map(t):
        return _maps(t, path)
    if pa.types.is_fixed_size_list(t):
        return _lists(t, path, t.list_size)
    if is_list(t) or is_list_view(t):
        return _lists(t, path, None)
    if pa.types.is_run_end_encoded(t):
        return reader_of(t.value_type, path)
    if isinstance(t, pa.BaseExtensionType):
        return reader_of(t.storage_type, path)
    return None


def _size_of(reader: ValueReader) -> Callable[[Any], int]:
    """Return a function that measures a value, which may be None."""
    size_bytes = reader.size_bytes
    if isinstance(size_bytes, int):
        return lambda value: 0 if value is None else size_bytes
    return lambda value: 0 if value is None else size_bytes(value)


def _sizes_of(reader: ValueReader) -> Callable[[Iterable[Any]], int]:
    """Return a function that measures many values; each may be None."""
    size_bytes = reader.size_bytes
    if size_bytes == 0:
        return lambda values: 0
    size_of = _size_of(reader)
    return lambda values: sum(map(size_of, values))


def _maybe(field: pa.Field, reader: ValueReader) -> Callable[[Any], Any]:
    """Return a function that reads a value, and passes None if the field is nullable."""
    read = reader.read
    return (lambda value: None if value is None else read(value)) if field.nullable else read


def _without_nulls(values: Iterable[Any], error: SchemaError) -> list[Any]:
    """Return values with None for each null Arrow scalar, so that the caller can read them again.

    This happens only after an error, because Arrow scalars are rare.

    Args:
        values: the values.
        error: the error that reading them raised; raised again if none of them is a null Arrow scalar.
    """
    given = list(values)
    found = [None if is_arrow_null(value) else value for value in given]
    if all(map(operator.is_, given, found)):
        raise error
    return found


def _lists(t: pa.DataType, path: str, length: int | None) -> ValueReader:
    field = t.value_field
    element = reader_of(field.type, f"{path}.element")
    wants = "a list, a tuple or another sequence" + ("" if length is None else f", {length} long")
    column, read_one, sizes_of = ColumnPath(path, t, wants), _maybe(field, element), _sizes_of(element)
    are_plain = element.are_plain

    def read(value: Any) -> Any:
        kind = type(value)
        if kind is not list and kind is not tuple:
            value = _elements(value, column)
        elif kind is list:
            value = value.copy()  # before it is read: another thread may change it
        try:
            found = value if are_plain is not None and are_plain(value) else list(map(read_one, value))
        except SchemaError as e:
            found = list(map(read_one, _without_nulls(value, e)))
        if length is not None and len(found) != length:
            raise column.misfit(value)
        return tuple(found) if kind is tuple else found

    def size_bytes(found: list[Any] | tuple[Any, ...]) -> int:
        return found.__sizeof__() + GC_HEAD_BYTES + sizes_of(found)

    return ValueReader(read, size_bytes)


def _elements(value: Any, column: ColumnPath) -> list[Any]:
    """Return the elements of a sequence that is neither a list nor a tuple."""
    cause: Exception | None = None
    try:
        kind = type(value)
        if issubclass(kind, pa.Array | pa.ChunkedArray):
            found = value.to_pylist()
            return list(found)
        if issubclass(kind, pa.Scalar):
            value = native(value)
        if _is_numpy_array(value):
            return list(value.tolist()) if value.dtype.kind in "biufSU" else list(value)
        if _is_of_pandas(kind) or (issubclass(kind, Sequence | ValuesView) and not issubclass(kind, _NOT_LISTS)):
            return list(value)
    except Exception as e:  # from the value's own methods
        cause = e
    raise column.misfit(value, cause)


def _is_numpy_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype") and getattr(value, "ndim", 0) > 0


def _is_of_pandas(kind: type) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and issubclass(kind, pandas.Series | pandas.Index)


def _maps(t: pa.MapType, path: str) -> ValueReader:
    key, item = reader_of(t.key_type, f"{path}.key"), reader_of(t.item_type, f"{path}.value")
    column = ColumnPath(path, t, "a mapping, or a list of pairs of a key and a value")
    read_key, read_item = key.read, _maybe(t.item_field, item)
    keys_size, items_size = _sizes_of(key), _sizes_of(item)

    def read(value: Any) -> Any:
        pairs, is_mapping = _pairs(value, column)
        try:
            found = [(read_key(k), read_item(v)) for k, v in pairs]
        except SchemaError as e:
            items = _without_nulls([v for _, v in pairs], e)
            found = [(read_key(k), read_item(v)) for (k, _), v in zip(pairs, items, strict=True)]
        if is_mapping and len(as_mapping := _mapping(found)) == len(found):
            return as_mapping
        return found

    def size_bytes(found: dict[Any, Any] | list[tuple[Any, Any]]) -> int:
        own = found.__sizeof__() + GC_HEAD_BYTES
        if type(found) is dict:
            return own + keys_size(found) + items_size(found.values())
        return own + 72 * len(found) + keys_size(k for k, _ in found) + items_size(v for _, v in found)

    return ValueReader(read, size_bytes)


def _pairs(value: Any, column: ColumnPath) -> tuple[Sequence[tuple[Any, Any]], bool]:
    """Return a map's pairs of key and value, and whether the value is a mapping rather than a list of pairs."""
    if type(value) is dict:
        return list(value.items()), True
    cause: Exception | None = None
    try:
        if issubclass(type(value), pa.Scalar):
            value = native(value)
        is_mapping = isinstance(value, Mapping)
        if is_mapping or (isinstance(value, Sequence) and not isinstance(value, _NOT_LISTS)):
            pairs = list(value.items()) if is_mapping else [_pair(p) for p in value]
            if all(type(p) in (tuple, list) and len(p) == 2 for p in pairs):
                return pairs, is_mapping
    except Exception as e:  # from the value's own methods
        cause = e
    raise column.misfit(value, cause)


def _pair(value: Any) -> Any:
    """Return ``{"key": …, "value": …}`` as a pair, and any other value unchanged."""
    if type(value) is dict and value.keys() == {"key", "value"}:
        return value["key"], value["value"]
    return value


def _mapping(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    try:
        return dict(pairs)
    except TypeError:  # a key is or contains a list, which can't be hashed
        return {}


def _structs(t: pa.StructType, path: str) -> ValueReader:
    column = ColumnPath(
        path, t, "a mapping of the names of its fields to values, or a tuple with a value for each field"
    )
    fields = [t.field(i) for i in range(t.num_fields)]

    def unknown(name: Any) -> SchemaError:
        return SchemaError(
            f"a row does not fit the channel's schema: the column {path!r} has no field {name}; it has the type {t}"
        )

    inside = fields_reader(fields, f"{path}.", unknown)
    names = [f.name for f in fields]
    read_fields = inside.read

    def read(value: Any) -> Any:
        return read_fields(value if type(value) is dict else _fields(value, names, column))

    return ValueReader(read, inside.size_bytes)


def _fields(value: Any, names: list[str], column: ColumnPath) -> dict[Any, Any]:
    """Return the fields of a struct's value that is not a dictionary."""
    cause: Exception | None = None
    try:
        if issubclass(type(value), pa.Scalar):
            value = native(value)
        if isinstance(value, Mapping):
            return dict(value.items())
        if issubclass(type(value), tuple):
            own = getattr(value, "_fields", None) or getattr(value, "__fields__", names)  # of a namedtuple; of a Row
            return dict(zip(own, value, strict=True))
    except Exception as e:  # from the value's own methods
        cause = e
    raise column.misfit(value, cause)


def fields_reader(fields: Sequence[pa.Field], prefix: str, unknown: Callable[[str], SchemaError]) -> ValueReader:
    """Return the reader of dictionaries from names to values; nullable fields may be missing.

    Args:
        fields: the fields.
        prefix: the prefix of their names in messages.
        unknown: returns the error for a name that is not a field; its argument is the name as shown in messages.
    """
    readers = {f.name: reader_of(f.type, f"{prefix}{f.name}") for f in fields}
    known = {f.name: (f.name, readers[f.name].read, f.nullable) for f in fields}
    required = {f.name for f in fields if not f.nullable}
    counted = {name: _size_of(reader) for name, reader in readers.items() if reader.size_bytes != 0}

    def read(given: dict[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            for name, value in given.items():
                if type(name) is not str or name not in known:
                    name = _known_name(name, known, found, unknown)
                name, read_one, nullable = known[name]
                found[name] = None if value is None and nullable else read_one(value)
        except SchemaError as e:
            return read(dict(zip(given, _without_nulls(given.values(), e), strict=True)))
        if len(found) != len(given):
            raise unknown("that occurs twice: names are compared as plain texts")
        if required and (missing := required - found.keys()):
            raise ColumnPath(f"{prefix}{min(missing)}", None, "").misfit(None)
        return found

    def size_bytes(found: dict[str, Any]) -> int:
        size = found.__sizeof__() + GC_HEAD_BYTES
        for name, size_of in counted.items():
            value = found.get(name)
            if value is not None:
                size += size_of(value)
        return size

    return ValueReader(read, size_bytes)


def _known_name(
    name: Any, known: Mapping[str, Any], found: Mapping[str, Any], unknown: Callable[[str], SchemaError]
) -> str:
    """Return a field's name as a plain str if it is an instance of a subclass.

    Raises:
        SchemaError: no field has this name, or the dictionary has it twice.
    """
    if not issubclass(type(name), str):
        raise unknown(f"of the type {type(name).__name__}, and names are texts")
    plain = str.__str__(name)
    if plain not in known or plain in found:
        raise unknown(repr(plain))
    return plain
