from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.patterns.java_pattern_text import Flags, PatternText


def test_comments_and_blanks_do_not_count_where_the_flag_says_so() -> None:
    assert [PatternText(" # x\n a", flags=Flags(comments=on)).take() for on in (True, False)] == ["a", " "]


@pytest.mark.parametrize(
    ("escape", "code"),
    [("t", 9), ("0101", 65), ("0400", 32), ("x41", 65), ("x{1F600}", 0x1F600), ("u00e9", 0xE9), ("cA", 1), (".", 46)],
)
def test_an_escape_stands_for_a_character(escape: str, code: int) -> None:
    assert PatternText(escape).escaped_character() == code


def test_two_halves_in_utf_16_are_one_character() -> None:
    assert PatternText(r"uD83D\uDE00").escaped_character() == 0x1F600


@pytest.mark.parametrize("escape", ["y", "x{}", "x{110000}", "xg", "u12", "0", "uD83D", ""])
def test_an_escape_that_java_has_not_is_refused_with_the_place(escape: str) -> None:
    with pytest.raises(OptionError, match="at position"):
        PatternText(escape).escaped_character()


def test_a_quotation_goes_to_its_end_or_to_that_of_the_pattern() -> None:
    pattern = PatternText(r"a.b\Ec")
    assert (pattern.quoted(), pattern.quoted(), pattern.quoted()) == ("a.b", "c", "")
