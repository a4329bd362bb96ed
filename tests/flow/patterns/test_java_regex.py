"""How a Java pattern is written for the other engines; that it finds the same, `test_regex` proves."""

from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.patterns.java_regex import translate


def test_groups_are_counted_and_named() -> None:
    found = translate("(a)(?<name>b(c))(?:d)")
    assert (found.groups, found.names) == (3, {"name": 2})
    assert found.re2 == "(?P<g1>a)(?P<g2>b(?P<g3>c))(?:d)" and found.python == "(a)(b(c))(?:d)"


def test_case_is_written_out_where_it_is_ignored() -> None:
    found = translate("(?i)a1(?-i)b")
    assert (found.python, found.re2) == ("[Aa][1]b", "[Aa][1]b")


def test_what_may_match_nothing_is_known() -> None:
    assert [translate(p).may_be_empty for p in ("a", "a?", "a|", "^", "(a*)", "a*b", "(?=a)", r"\Qa\E*")] == [
        *(False, True, True, True, True, False, True, True)
    ]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("a)", r"a \) without its \(, at position 1"),
        ("[a", r"a \[ without its \]"),
        ("*a", r"a \* that repeats nothing, at position 0"),
        ("a**", r"\* repeats a repetition"),
        ("{", r"a \{ that repeats nothing"),
        (r"\q", r"there is no escape \\q"),
        ("a\\", "it ends too early"),
        ("(?z)", r"there is no group \(\?z"),
        (r"\uD83D", "half of a character"),
        ("[b-a]", "wrong way round"),
        ("a{3,2}", "wrong way round"),
    ],
)
def test_what_java_refuses_is_refused_with_the_place(pattern: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        translate(pattern)
