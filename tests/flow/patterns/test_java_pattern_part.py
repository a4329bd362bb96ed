"""Parts are put together as the engines' languages do."""

from __future__ import annotations

from spillable_stream.flow.patterns.java_pattern_part import NOTHING, Part

TEXT = Part("a", "a", prefix="a", is_text=True)
GROUP = Part("(b*)", "(?P<g1>b*)", True, True)


def test_parts_in_a_row_begin_with_the_texts_before_the_first_other() -> None:
    found = Part.in_a_row([TEXT, TEXT, GROUP, TEXT])
    assert (found.python, found.re2) == ("aa(b*)a", "aa(?P<g1>b*)a")
    assert (found.prefix, found.is_text, found.may_be_empty, found.has_group) == ("aa", False, False, True)
    assert Part.in_a_row([TEXT, TEXT]).is_text and Part.in_a_row([GROUP, NOTHING]).may_be_empty


def test_one_of_some_parts_begins_with_nothing_that_is_known() -> None:
    found = Part.either([TEXT, GROUP])
    assert (found.python, found.re2) == ("a|(b*)", "a|(?P<g1>b*)")
    assert (found.prefix, found.is_text, found.may_be_empty, found.has_group) == ("", False, True, True)
    assert not Part.either([TEXT, TEXT]).may_be_empty
