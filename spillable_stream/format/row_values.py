"""Rows of typed channels: what is put is what is given out, and is the channel's own from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.format.conversion import cast_column
from spillable_stream.format.types import NOT_ARROW, with_leaves
from spillable_stream.format.value_readers import fields_reader

__all__ = ["RowReader", "row_reader"]

_LIST_PLACE_BYTES = 9
_MOST_READERS = 256


class RowReader:
    """Reads rows of one schema: checks, copies and measures them, and makes Arrow of what it read.

    Args:
        schema: the schema, which must not be changed.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._builders = [_builder(field.type) for field in schema]
        readable = [
            f if build is not None else f.with_type(pa.null()) for f, build in zip(schema, self._builders, strict=True)
        ]
        fields = fields_reader(readable, "", self._unknown)
        self._read: Callable[[dict[Any, Any]], dict[str, Any]] = fields.read
        self._size_bytes: Callable[[dict[str, Any]], int] = fields.size_bytes  # type: ignore[assignment]

    def _unknown(self, name: str) -> SchemaError:
        return SchemaError(f"the channel has no column {name}; it has {', '.join(self.schema.names)}")

    def read(self, row: Any) -> dict[str, Any]:
        """Return what is kept of a row: an equal dictionary, of which nothing can be changed from outside.

        Raises:
            SchemaError: the row is no mapping, has an unknown column or field, or a value does not fit, would be cut
                or could not be given out; whatever its own methods raise.
        """
        try:
            if type(row) is dict:
                return self._read(row)
            if not isinstance(row, Mapping):
                raise SchemaError(f"a typed channel takes mappings of column to value, not {type(row).__name__}")
            return self._read(dict(row.items()))
        except SchemaError:
            raise
        except Exception as e:  # anybody's code, or another thread that changes the row right now
            raise SchemaError(f"a row can't be read: {type(e).__name__} in a {type(row).__name__}") from e

    def size_bytes(self, row: dict[str, Any]) -> int:
        """Return how much memory something holds that was read, its place in a list included."""
        return self._size_bytes(row) + _LIST_PLACE_BYTES

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Return rows that were read as a record batch.

        Raises:
            SchemaError: they are larger than one batch can be.
        """
        try:
            columns = [
                pa.nulls(len(rows), field.type) if build is None else build([row.get(field.name) for row in rows])
                for field, build in zip(self.schema, self._builders, strict=True)
            ]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        except (*NOT_ARROW, ArithmeticError) as e:
            raise SchemaError(f"{len(rows):,} rows do not make a batch: {e}; put fewer at once") from e


_readers: dict[int, RowReader] = {}


def row_reader(schema: pa.Schema) -> RowReader:
    """Return the reader of a schema; the same one for the same object."""
    found = _readers.get(id(schema))
    if found is None or found.schema is not schema:  # it keeps its schema, so that no other object has its number
        if len(_readers) >= _MOST_READERS:
            _readers.clear()
        found = _readers[id(schema)] = RowReader(schema)
    return found


def _builder(t: pa.DataType) -> Callable[[list[Any]], pa.Array] | None:
    """Return what makes a column of values that were read; None if Arrow makes none of Python's objects."""
    plain = with_leaves(t, _made_as)

    def build(values: list[Any]) -> pa.Array:
        return pa.array(values, plain)

    def build_and_cast(values: list[Any]) -> pa.Array:
        return cast_column(pa.array(values, plain), t)

    def build_extension(values: list[Any]) -> pa.Array:
        stored = _STORED.get(t.extension_name)
        if stored is not None:
            values = [None if v is None else stored(v) for v in values]
        return pa.ExtensionArray.from_storage(t, pa.array(values, t.storage_type))

    if _is_cast(plain):
        return None  # in a list view, or in runs
    found = build if plain.equals(t) else build_and_cast
    if isinstance(t, pa.BaseExtensionType):
        found = build_extension
    try:
        found([None])
    except NOT_ARROW:
        return None
    return found


_STORED: dict[str, Callable[[Any], Any]] = {"arrow.uuid": lambda value: value.bytes, "arrow.bool8": int}


def _made_as(t: pa.DataType) -> pa.DataType:
    """Return the type as which a column without others inside is made, before it is cast.

    At half floats Arrow 18 ends the process; each is a single one, too. Arrow takes no Decimal for a decimal with more
    digits behind the point than it has at all.
    """
    if pa.types.is_float16(t):
        return pa.float32()
    if pa.types.is_decimal(t) and t.scale > t.precision:
        return pa.decimal256(76, t.scale)
    return t


def _is_cast(t: pa.DataType) -> bool:
    """Tell whether there is anything in a type that is not made as it is."""
    if isinstance(t, pa.BaseExtensionType):
        return _is_cast(t.storage_type)
    if pa.types.is_run_end_encoded(t):
        return _is_cast(t.value_type)
    return not _made_as(t).equals(t) or any(_is_cast(t.field(i).type) for i in range(t.num_fields))
