"""Rows that callers give, as Arrow: batches, tables, and data frames of any library that offers them as Arrow."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.format.types import NOT_ARROW

__all__ = ["ArrowRows", "ArrowStream", "arrow_rows"]


class ArrowStream(Protocol):
    """What offers its rows as Arrow: a data frame of pandas (2.2 and later) or polars, a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with a stream of batches."""


ArrowRows: TypeAlias = pa.RecordBatch | pa.Table | ArrowStream
"""Rows of any library that knows Arrow."""


def arrow_rows(rows: ArrowRows, call: str) -> pa.RecordBatch | pa.Table:
    """Return rows as an Arrow batch or table.

    An index of pandas that is more than a count becomes a column, as in `pyarrow.Table.from_pandas`.

    Args:
        rows: the rows.
        call: what was called with them, for messages.

    Raises:
        SchemaError: they are nothing that Arrow can read.
    """
    if isinstance(rows, (pa.RecordBatch, pa.Table)):
        return rows
    if isinstance(rows, type) or not (hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")):
        raise SchemaError(
            f"{call} takes a pyarrow.RecordBatch, a pyarrow.Table or a data frame, not {type(rows).__name__}; "
            "put_many and send_many take Python objects"
        )
    try:
        return pa.table(rows)
    except NOT_ARROW as e:
        why = ": ".join(map(str, reversed(e.args)))  # what failed, then why: pandas' columns come with both
        raise SchemaError(f"{call} can't read a {type(rows).__name__} as an Arrow table: {why}") from e
