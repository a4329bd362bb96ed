"""What an export has: the events of a channel that were asked for, and the format of their file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from spillable_stream.cli.csv_rows import COMMA
from spillable_stream.errors import OptionError

__all__ = ["ExportFormat", "ExportPlan", "export_format"]


class ExportFormat(StrEnum):
    """The formats of a file, by the words of ``--format``."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"


_ENDINGS = {
    ".parquet": ExportFormat.PARQUET,
    ".jsonl": ExportFormat.JSONL,
    ".ndjson": ExportFormat.JSONL,
    ".csv": ExportFormat.CSV,
    ".tsv": ExportFormat.CSV,
    ".arrow": ExportFormat.ARROW,
}


def export_format(file: str) -> ExportFormat:
    """Return the format that a file's name ends with.

    Raises:
        OptionError: it ends with none.
    """
    found = _ENDINGS.get(Path(file).suffix.lower())
    if found is None:
        raise OptionError(f"{file} ends with none of {', '.join(_ENDINGS)}: give --format")
    return found


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export has.

    Args:
        channel: the channel's UUID.
        first_id: the first event.
        last_id: the last event; less than the first if there are none.
        format: the file's format.
        columns: the names of the columns; those that the channel gets later are left out.
        delimiter: what divides the values of CSV.
        start: the first event, as it was asked for: "1h ago" is another event when the export is continued.
        end: the last event, likewise; None for all.
    """

    channel: str
    first_id: int
    last_id: int
    format: str
    columns: list[str]
    delimiter: str = COMMA
    start: str = "earliest"
    end: str | None = None

    def asked(self) -> str:
        """Return what was asked for, in words: an export that was interrupted is continued for the same."""
        divided = f" with the delimiter {self.delimiter!r}" if self.format == ExportFormat.CSV else ""
        end = "" if self.end is None else f" --to {self.end!r}"
        return f"the channel {self.channel} to {self.format}{divided}, --from {self.start!r}{end}"
