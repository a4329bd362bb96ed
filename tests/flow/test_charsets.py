"""Character sets have Python's names, and those of Java that Flume's files use."""

from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.charsets import charset_name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("UTF-8", "utf-8"),
        ("utf8", "utf-8"),
        ("ISO-8859-1", "iso8859-1"),
        ("ISO8859_15", "iso8859-15"),
        ("US-ASCII", "ascii"),
        ("Cp1252", "cp1252"),
        ("windows-1252", "cp1252"),
        ("windows-31j", "cp932"),
        ("Windows-31J", "cp932"),
        ("x-windows-949", "cp949"),
        ("x-MacRoman", "mac-roman"),
        ("x-Big5-HKSCS", "big5hkscs"),
        ("GB18030", "gb18030"),
        ("UTF-16LE", "utf-16-le"),
    ],
)
def test_a_name_of_pythons_or_javas_is_found(given: str, name: str) -> None:
    assert charset_name(given) == name


@pytest.mark.parametrize("given", ["klingon", "hex", "rot13", "base64", "", "a\0b", "windows-1", "windows-"])
def test_a_name_of_no_character_set_is_refused(given: str) -> None:
    with pytest.raises(OptionError, match="there is no character set"):
        charset_name(given)
