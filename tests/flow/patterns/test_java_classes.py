from __future__ import annotations

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.patterns.java_classes import bracketed, class_escape
from spillable_stream.flow.patterns.java_pattern_text import Flags, PatternText


@pytest.mark.parametrize(
    ("rest", "ranges"),
    [
        ("abc]", [(97, 99)]),
        ("]a]", [(93, 93), (97, 97)]),
        ("a-c[x]]", [(97, 99), (120, 120)]),
        ("a-z&&[^b-y]]", [(97, 97), (122, 122)]),
        (r"\d-]", [(45, 45), (48, 57)]),
        (r"\Q^-\E]", [(45, 45), (94, 94)]),
    ],
)
def test_a_class_in_brackets_has_the_characters_that_it_has_for_java(rest: str, ranges: list[tuple[int, int]]) -> None:
    pattern = PatternText(rest)
    assert list(bracketed(pattern).ranges) == ranges and pattern.at == len(rest)


def test_case_is_ignored_where_the_flag_says_so() -> None:
    assert list(bracketed(PatternText("b]", flags=Flags(ignore_case=True))).ranges) == [(66, 66), (98, 98)]
    assert list(class_escape(PatternText("p{Upper}", flags=Flags(ignore_case=True))).ranges) == [(65, 90), (97, 122)]


def test_a_property_of_unicode_is_the_same_in_ascii_only() -> None:
    pattern = PatternText("p{Lu}")
    assert class_escape(pattern).ranges[0] == (65, 90)
    assert pattern.ascii_only and pattern.limits == ["texts beyond ASCII: versions of Unicode differ"]


@pytest.mark.parametrize("rest", ["abc", "z-a]", "&&a]", r"a-\d]", r"\p{No_Such}]"])
def test_a_class_that_java_or_this_refuses_is_refused_with_the_place(rest: str) -> None:
    with pytest.raises(OptionError, match="at position"):
        bracketed(PatternText(rest))
