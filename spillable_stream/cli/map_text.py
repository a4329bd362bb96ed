"""Maps in JSON.

A map whose keys are texts or whole numbers is an object. One of other keys, or with a key twice, is a list of its
entries: objects with ``key`` and ``value``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from spillable_stream.format.types import is_list, is_list_view

__all__ = ["entries_of", "rows_with_plain_maps"]

_WHOLE = re.compile(r"-?[0-9]+")
_ENTRY = {"key", "value"}

_Plain = Callable[[Any], Any]


def rows_with_plain_maps(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> Iterator[dict[str, Any]]:
    """Yield rows with all maps in them as JSON has them.

    Args:
        rows: rows as Arrow makes Python of them: a map is a list of pairs.
        schema: their columns.
    """
    plain = {field.name: found for field in schema if (found := _plain(field.type)) is not None}
    for row in rows:
        yield {name: plain[name](value) if name in plain else value for name, value in row.items()} if plain else row


def entries_of(value: object, of: pa.DataType) -> list[tuple[object, object]]:
    """Return the keys and values of a map that JSON has.

    Args:
        value: an object, or a list of entries.
        of: the map's type.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, dict) and _has_names(of):
        is_whole = pa.types.is_integer(of.key_type)
        return [(_whole(key) if is_whole else key, item) for key, item in value.items()]
    if isinstance(value, list) and all(isinstance(entry, dict) and entry.keys() == _ENTRY for entry in value):
        return [(entry["key"], entry["value"]) for entry in value]
    raise ValueError(f"{value!r} is not of the type {of}")


def _has_names(of: pa.DataType) -> bool:
    """Tell whether the keys of a map can be names in an object."""
    types, key = pa.types, of.key_type
    return bool(
        types.is_integer(key) or types.is_string(key) or types.is_large_string(key) or types.is_string_view(key)
    )


def _whole(key: str) -> int:
    if not _WHOLE.fullmatch(key):
        raise ValueError(f"{key!r} is not a whole number")
    return int(key)


def _plain(of: pa.DataType) -> _Plain | None:
    """Return what makes plain values of a type's; None if it has no map inside."""
    if pa.types.is_map(of):
        return _plain_map(of)
    if is_list(of) or is_list_view(of) or pa.types.is_fixed_size_list(of):
        inner = _plain(of.value_type)
        return None if inner is None else _unless_null(lambda values: [inner(value) for value in values])
    if pa.types.is_struct(of):
        parts = {field.name: found for field in of if (found := _plain(field.type)) is not None}
        return (
            _unless_null(lambda value: {n: parts[n](v) if n in parts else v for n, v in value.items()})
            if parts
            else None
        )
    return None


def _plain_map(of: pa.DataType) -> _Plain:
    key, item, has_names = _plain(of.key_type) or _same, _plain(of.item_type) or _same, _has_names(of)

    def plain(pairs: list[tuple[Any, Any]]) -> object:
        if has_names and len(found := {name: item(value) for name, value in pairs}) == len(pairs):
            return found
        return [{"key": key(name), "value": item(value)} for name, value in pairs]

    return _unless_null(plain)


def _unless_null(plain: _Plain) -> _Plain:
    return lambda value: None if value is None else plain(value)


def _same(value: Any) -> Any:
    return value
