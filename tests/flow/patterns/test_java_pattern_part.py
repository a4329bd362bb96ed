"""Parts are put together as the engines' languages do."""

from __future__ import annotations

from spillable_stream.flow.patterns.java_pattern_part import NOTHING, PatternPart

TEXT = PatternPart("a", "a", prefix="a", is_text=True)
GROUP = PatternPart("(b*)", "(?P<g1>b*)", True, True)


def test_parts_in_a_row_begin_with_the_texts_before_the_first_other() -> None:
    found = PatternPart.in_a_row([TEXT, TEXT, GROUP, TEXT])
    assert (found.python, found.re2) == ("aa(b*)a", "aa(?P<g1>b*)a")
    assert (found.prefix, found.is_text, found.may_be_empty, found.has_group) == ("aa", False, False, True)
    assert PatternPart.in_a_row([TEXT, TEXT]).is_text and PatternPart.in_a_row([GROUP, NOTHING]).may_be_empty


def test_one_of_some_parts_begins_with_nothing_that_is_known() -> None:
    found = PatternPart.either([TEXT, GROUP])
    assert (found.python, found.re2) == ("a|(b*)", "a|(?P<g1>b*)")
    assert (found.prefix, found.is_text, found.may_be_empty, found.has_group) == ("", False, True, True)
    assert not PatternPart.either([TEXT, TEXT]).may_be_empty
