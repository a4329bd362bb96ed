"""Sets of characters, beside Python's own sets."""

from __future__ import annotations

import re
import unicodedata

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.flow.patterns.code_points import CodePoints

SAMPLE = [chr(c) for c in (*range(0x180), 0x2028, 0x3042, 0x1F600, 0x10FFFF)]
SETS = st.frozensets(st.sampled_from(SAMPLE), max_size=6)


def of(points: CodePoints) -> frozenset[str]:
    return frozenset(c for c in SAMPLE if any(a <= ord(c) <= b for a, b in points.ranges))


@given(SETS, SETS)
def test_they_behave_as_sets(one: frozenset[str], other: frozenset[str]) -> None:
    a, b = CodePoints.of("".join(one)), CodePoints.of("".join(other))
    assert of(a | b) == one | other and of(a & b) == one & other and of(~a) == frozenset(SAMPLE) - one
    assert bool(a) == bool(one) and (~~a).ranges == a.ranges
    cased = {c for c in SAMPLE if c in one or (c.isascii() and c.isalpha() and c.swapcase() in one)}
    assert of(a.in_both_cases()) == cased


@given(SETS, st.booleans())
def test_both_engines_read_what_is_written(characters: frozenset[str], negated: bool) -> None:
    points = ~CodePoints.of("".join(characters)) if negated else CodePoints.of("".join(characters))
    expected = [c in of(points) for c in SAMPLE]
    assert [re.fullmatch(points.python(), c) is not None for c in SAMPLE] == expected
    assert pc.match_substring_regex(pa.array(SAMPLE), points.re2()).to_pylist() == expected


def test_a_category_has_the_characters_that_unicode_says() -> None:
    assert of(CodePoints.of_category("Lu")) == {c for c in SAMPLE if unicodedata.category(c) == "Lu"}
    assert of(CodePoints.of_category("L")) == {c for c in SAMPLE if unicodedata.category(c).startswith("L")}
    assert not CodePoints.of_category("Xx")
