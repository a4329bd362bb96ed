"""Rows of CSV."""

from __future__ import annotations

import pytest

from spillable_stream import OptionError
from spillable_stream.cli.csv_rows import CsvRows, csv_delimiter, delimiter_of, end_of_row, end_of_rows, has_row


def test_a_row_ends_outside_of_quotes() -> None:
    data = b'\n"a\n""b";c\r\n1;"x'
    assert (end_of_row(data, ";"), end_of_rows(data[1:], ";") + 1) == (len(data) - 4, len(data) - 4)
    assert end_of_row(b'"a\n', ",") == end_of_rows(b'"a\n', ",") == 0
    assert end_of_rows(b'a,"b\n"\n', ";") == 5, "a quote counts only where a value begins"


def test_there_is_a_row_behind_the_names_only_when_it_is_whole() -> None:
    assert [has_row(data, ",") for data in (b"", b"a,b", b"a,b\n", b"a,b\n\n", b"a,b\n1", b"a,b\n1\n")] == [
        *[False] * 5, True,
    ]  # fmt: skip


def test_the_names_are_those_of_the_first_row_whatever_follows() -> None:
    for data in (b"a,b\n1,2,3\n", b'\n"a","b"\r"x'):
        assert CsvRows(data, ",").columns() == ["a", "b"]


def test_a_delimiter_is_one_character_that_no_number_has() -> None:
    for text, found in ((";", ";"), ("tab", "\t"), ("TAB", "\t"), (r"\t", "\t"), ("\t", "\t"), ("\x01", "\x01")):
        assert csv_delimiter(text, is_csv=True) == found
    assert csv_delimiter(None, is_csv=False) is None
    for wrong in ("", "ab", "a", "1", ".", "-", "+", '"', "\r", "\0", "é"):
        with pytest.raises(OptionError, match="can't divide values"):
            csv_delimiter(wrong, is_csv=True)


def test_the_name_of_a_file_says_a_delimiter() -> None:
    assert [delimiter_of(file) for file in ("a.tsv", "A.TSV.gz", "a.csv", "a.tsv.old.csv")] == ["\t", "\t", None, None]
