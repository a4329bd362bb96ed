"""Divides a sink's rows among several channels, by the hash of some columns.

The rule is the keyed producer's (`spillable_stream.sharding`). A key is what the columns say as text: strings and
binaries are their bytes, other values what Arrow's cast to a string gives, timestamps with a zone in UTC, and a null is
the empty text. Several columns are joined by the separator of units, a character that exists to separate. A value that
contains it only shares a channel with another key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.errors import OptionError
from spillable_stream.options import BUCKETS, MOST_BUCKETS
from spillable_stream.sharding import shard_of_key
from spillable_stream.shown_value import shown
from spillable_stream.spark.sink.division import digest

__all__ = ["SEPARATOR", "Shards"]

SEPARATOR = b"\x1f"
"""Between the texts of a key's columns."""


@dataclass(frozen=True, slots=True)
class Shards:
    """How rows are divided among channels. Picklable.

    Args:
        count: how many channels there are.
        columns: the columns that make up a row's key.
        types: their types, which say what their texts are like.
    """

    count: int
    columns: tuple[str, ...]
    types: tuple[str, ...]

    @classmethod
    def of(cls, count: int, columns: Sequence[str], schema: pa.Schema) -> Self:
        """Return how rows of a schema are divided.

        Args:
            count: how many channels there are.
            columns: the columns that make up a row's key.
            schema: the rows' schema, in Arrow's types.

        Raises:
            OptionError: the rows do not have a column, or its type has no text.
        """
        for name in columns:
            if name not in schema.names:
                raise OptionError(
                    f"shardBy names the column {shown(name)}, and the rows have {', '.join(schema.names)}; name one of "
                    "these"
                )
            kind = schema.field(name).type
            if not _has_text(kind):
                raise OptionError(
                    f"shardBy names the column {shown(name)} of the type {kind}, which has no text to hash; name "
                    "columns of texts, numbers or times, such as a field of it that is selected beside it"
                )
        return cls(count, tuple(columns), tuple([str(schema.field(name).type) for name in columns]))

    @property
    def buckets(self) -> int:
        """How many buckets the keys' hashes are divided into: a producer's default, or its most for many channels."""
        return BUCKETS if self.count <= BUCKETS else MOST_BUCKETS

    @property
    def name(self) -> str:
        """A short text that another division of rows does not have: the count, and a digest of columns and types."""
        return f"{self.count}-{digest([*self.columns, *self.types])}"

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each shard that has some, in their order, with the shard's number."""
        keys, buckets, count = self.keys(batch).dictionary_encode(), self.buckets, self.count
        of_key = [shard_of_key(key, buckets, count) for key in keys.dictionary.to_pylist()]
        of_row = pa.array(of_key, pa.uint8()).take(keys.indices)
        rows, start = pc.array_sort_indices(of_row), 0  # a stable sort
        for found in sorted(of_row.value_counts().to_pylist(), key=lambda found: found["values"]):
            shard, length = found["values"], found["counts"]
            yield shard, batch if length == batch.num_rows else batch.take(rows.slice(start, length))
            start += length

    def keys(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the key of each row, as bytes."""
        texts = [_text(batch.column(name)).fill_null(b"") for name in self.columns]
        return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, pa.scalar(SEPARATOR, _BYTES))


_BYTES = pa.large_binary()  # the keys of a batch may have more bytes together than a column of the batch


def _text(column: pa.Array) -> pa.Array:
    """Return what a column says as text, as bytes."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))  # Spark sends the session's zone
    if pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))  # -0.0 is 0.0, as Spark has it
    return column.cast(_BYTES) if _is_bytes(kind) else column.cast(pa.string()).cast(_BYTES)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return False
    try:
        _text(pa.array([], kind))
    except pa.ArrowNotImplementedError:
        return False
    return True
