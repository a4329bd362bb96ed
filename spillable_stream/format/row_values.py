"""Reads the rows that an application puts into a typed channel: checks, copies and measures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.errors import SchemaError
from spillable_stream.format.conversion import cast_column
from spillable_stream.format.types import NOT_ARROW, with_leaves

__all__ = ["RowReader", "row_reader"]

_LIST_PLACE_BYTES = 9
_MOST_READERS = 256
_MADE_BY = (
    ("__dataclass_fields__", "dataclasses.asdict(row)"),
    ("_asdict", "row._asdict()"),
    ("model_dump", "row.model_dump()"),
    ("to_dict", "row.to_dict()"),
)


class RowReader:
    """Reads rows of one schema, and converts the rows that it read to Arrow."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._builders = [_builder(field.type) for field in schema]
        readable = [
            f if build is not None else f.with_type(pa.null()) for f, build in zip(schema, self._builders, strict=True)
        ]
        from spillable_stream.format.value_readers import fields_reader

        fields = fields_reader(readable, "", self._unknown)
        self._read: Callable[[dict[Any, Any]], dict[str, Any]] = fields.read
        self._size_bytes: Callable[[dict[str, Any]], int] = fields.size_bytes  # type: ignore[assignment]

    def _unknown(self, name: str) -> SchemaError:
        return SchemaError(f"the channel has no column {name}; it has {', '.join(self.schema.names)}")

    def read(self, row: Any) -> dict[str, Any]:
        """Return a deep copy of a row, as a dictionary of plain objects that equals it.

        Raises:
            SchemaError: the row is not a mapping, or has an unknown column or field; a value does not fit, or would
                be stored inexactly; or the row's own methods raised an error.
        """
        try:
            if type(row) is dict:
                return self._read(row)
            if not isinstance(row, Mapping):
                raise SchemaError(
                    f"a typed channel takes mappings of column to value, not {type(row).__name__}{self._hint(row)}"
                )
            return self._read(dict(row.items()))
        except SchemaError:
            raise
        except Exception as e:  # from the row's own methods, or because another thread changes it right now
            raise SchemaError(f"a row can't be read: {type(e).__name__} in a {type(row).__name__}") from e

    def _hint(self, row: object) -> str:
        """Return what takes a table, or makes a mapping of an object that has the columns."""
        if hasattr(row, "__arrow_c_stream__") and hasattr(row, "columns"):
            return "; put_batch takes it"
        if not all(hasattr(row, name) for name in self.schema.names):
            return ""
        return next((f": {words} makes one" for attribute, words in _MADE_BY if hasattr(row, attribute)), "")

    def size_bytes(self, row: dict[str, Any]) -> int:
        """Return how much memory a row from `read` takes, with its slot in a list, in bytes."""
        return self._size_bytes(row) + _LIST_PLACE_BYTES

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Return rows from `read` as a record batch.

        Raises:
            SchemaError: the rows do not fit one batch.
        """
        try:
            columns = [
                pa.nulls(len(rows), field.type) if build is None else build([row.get(field.name) for row in rows])
                for field, build in zip(self.schema, self._builders, strict=True)
            ]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        except NOT_ARROW as e:
            raise SchemaError(f"{counted(len(rows), 'row', 'do')} not make a batch: {e}; put fewer at once") from e


_readers: dict[int, RowReader] = {}


def row_reader(schema: pa.Schema) -> RowReader:
    """Return the reader of a schema object, from a cache."""
    found = _readers.get(id(schema))
    if found is None or found.schema is not schema:  # the reader keeps its schema alive, so no other object has its id
        if len(_readers) >= _MOST_READERS:
            _readers.clear()
        found = _readers[id(schema)] = RowReader(schema)
    return found


def _builder(t: pa.DataType) -> Callable[[list[Any]], pa.Array] | None:
    """Return a function that builds a column from read values; None if Arrow can't build one from Python objects."""
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
    """Return the type to build a flat column with, before it is cast to its own type.

    Arrow 18 crashes on half floats; every half float is also a single. Arrow does not accept a Decimal for a decimal
    type whose scale is larger than its precision.
    """
    if pa.types.is_float16(t):
        return pa.float32()
    if pa.types.is_decimal(t) and t.scale > t.precision:
        return pa.decimal256(76, t.scale)
    return t


def _is_cast(t: pa.DataType) -> bool:
    """Tell whether any part of a type is built as another type and then cast."""
    if isinstance(t, pa.BaseExtensionType):
        return _is_cast(t.storage_type)
    if pa.types.is_run_end_encoded(t):
        return _is_cast(t.value_type)
    return not _made_as(t).equals(t) or any(_is_cast(t.field(i).type) for i in range(t.num_fields))
