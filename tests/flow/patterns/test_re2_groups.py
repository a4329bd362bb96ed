"""Groups are the same whether or not it is known what a match begins with."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.flow.patterns.java_regex import translate
from spillable_stream.flow.patterns.re2_groups import groups_of

TEXTS = st.lists(st.text("aé\n", max_size=3).map(lambda t: t + "abéc") | st.text("abéc1", max_size=12), max_size=8)


def both(texts: pa.Array, pattern: str) -> tuple[object, object]:
    t = translate(pattern)
    assert t.re2 is not None
    return groups_of(texts, t.re2, t.groups, t.prefix), groups_of(texts, t.re2, t.groups, "")


@given(TEXTS, st.integers(0, 8), st.sampled_from(["abé(c*)", "abé(a)?(é|c)", "abé(?:c(1)|(b))", "aaa((a|b)*)é"]))
def test_a_match_that_begins_with_a_text_is_the_first_one(texts: list[str], begin: int, pattern: str) -> None:
    column = pa.array(texts, pa.string()).slice(begin)
    (valid, groups), (expected, of_plain) = both(column, pattern)  # type: ignore[misc]
    assert valid.to_pylist() == expected.to_pylist()
    assert [g.to_pylist() for g in groups] == [g.to_pylist() for g in of_plain]


def test_a_text_that_has_the_beginning_twice_matches_where_it_fits() -> None:
    (valid, (group,)), _ = both(pa.array(["id:x id:7", "id:8", "id:", "no"]), r"id:(\d)")  # type: ignore[misc]
    assert valid.to_pylist() == [True, True, False, False]
    assert group.to_pylist() == ["7", "8", None, None]


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("abc(d)", "abc"),
        (r"\[a\](b)", "[a]"),
        ("ab*", "a"),
        ("ab|ac", ""),
        ("(ab)c", ""),
        ("(?:ab)c", ""),
        ("a(?i)b", "a"),
        ("(?i)ab", ""),
        ("^ab", ""),
        (r"\Qa.b\E.c", "a.b"),
        ("a.b", "a"),
    ],
)
def test_what_matches_begin_with_is_known_from_the_pattern(pattern: str, prefix: str) -> None:
    assert translate(pattern).prefix == prefix
