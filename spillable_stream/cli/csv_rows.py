"""Rows of CSV: what divides their values, where they end, and the table that Arrow makes of them."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["COMMA", "TAB", "CsvRows", "csv_delimiter", "delimiter_of", "end_of_row", "end_of_rows", "has_row"]

COMMA, TAB = ",", "\t"
_TAB_IN_WORDS = ("tab", r"\t")
_OF_VALUES = '."+-\r\n\0'  # quotes, ends of rows, and what numbers consist of


def csv_delimiter(text: str | None, *, is_csv: bool) -> str | None:
    r"""Return the character between values that an option says, if it is given; ``tab`` and ``\t`` are words for one.

    Args:
        text: what the option says.
        is_csv: whether the format has such a character.

    Raises:
        OptionError: it is none, or the format has none.
    """
    if text is None:
        return None
    if not is_csv:
        raise OptionError(f"--delimiter {shown(text)} is for CSV: give --format csv, too")
    found = TAB if text.lower() in _TAB_IN_WORDS else text
    if len(found) != 1 or not found.isascii() or found.isalnum() or found in _OF_VALUES:
        raise OptionError(f"--delimiter {shown(text)} can't divide values: give one character, such as ';', '|' or tab")
    return found


def delimiter_of(file: str) -> str | None:
    """Return the character between values that a file's name says; None if it says none."""
    return TAB if ".tsv" in Path(file.lower()).suffixes[-2:] else None


class CsvRows(NamedTuple):
    """Whole rows.

    Args:
        data: their bytes.
        delimiter: the character between their values.
        names: the columns' names; none if the first row has them.
    """

    data: bytes
    delimiter: str
    names: Sequence[str] = ()

    @property
    def first_row(self) -> int:
        """The number of the first row of values, where Arrow counts a line of names, too."""
        return 1 if self.names else 2

    def columns(self) -> list[str]:
        """Return the columns' names, which the first row has."""
        line = self.data[: end_of_row(self.data, self.delimiter)] or self.data
        names: list[str] = self._replace(data=line).table(pa.schema([])).schema.names
        return names

    def table(self, known: pa.Schema, only: Sequence[str] = ()) -> pa.Table:
        """Return the rows as Arrow reads them.

        Args:
            known: the columns whose types are known.
            only: the columns to read; all of them by default.

        Raises:
            pa.ArrowInvalid: they are not rows of these types.
        """
        from pyarrow import csv

        # Arrow leaves out the mark of UTF-8 wherever it begins.
        data = BOM_UTF8 + self.data if self.names and self.data.startswith(BOM_UTF8) else self.data
        return csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=[*self.names]),
            csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            csv.ConvertOptions(
                column_types={field.name: field.type for field in known},
                include_columns=[*only],
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def end_of_rows(data: bytes | bytearray, delimiter: str) -> int:
    """Return how much of some CSV, from the beginning of a row on, is whole rows."""
    if b'"' not in data:
        return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    found = _patterns(delimiter)[1].match(data)
    assert found is not None, "it matches nothing at all, too"
    return found.end()


def end_of_row(data: bytes | bytearray, delimiter: str) -> int:
    """Return where the first row ends, behind empty lines; 0 if it is not whole."""
    found = _patterns(delimiter)[0].match(data)
    return 0 if found is None else found.end()


def has_row(data: bytes | bytearray, delimiter: str) -> bool:
    """Tell whether there is a whole row behind the line of names."""
    names = end_of_row(data, delimiter)
    return names > 0 and end_of_rows(data[names:].lstrip(b"\r\n"), delimiter) > 0


@cache
def _patterns(delimiter: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the patterns of a whole row and of all whole rows."""
    between = re.escape(delimiter.encode())
    # A quote counts where a value begins. A group that is repeated possessively is atomic itself: where one that is not
    # fails at last, Python 3.11.2 continues in the middle of it.
    value = rb'(?>"[^"]*+(?:""[^"]*+)*+"[^%b\r\n]*+|[^"%b\r\n][^%b\r\n]*+|)' % ((between,) * 3)
    row = rb"(?>(?>%b%b)*+%b[\r\n]++)" % (value, between, value)
    begin = b"(?>(?:%b)?)" % BOM_UTF8
    return re.compile(begin + rb"[\r\n]*+" + row), re.compile(rb"(?>" + begin + rb"(?:" + row + rb")++)?")
