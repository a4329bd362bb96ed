"""Reads what a load would."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from spillable_stream.cli.load_input import Format, open_input

__all__ = ["loaded_rows"]


def loaded_rows(
    file: Path, kind: Format, schema: pa.Schema | None = None, delimiter: str | None = None
) -> list[dict[str, object]]:
    """Return the rows of a file, as dictionaries."""
    source = open_input(str(file), kind, schema, as_rows=kind is not Format.LINES, delimiter=delimiter)
    try:
        return [row for batch in source.batches() for row in batch.to_pylist()]
    finally:
        source.close()
