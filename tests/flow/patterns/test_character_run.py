"""What some patterns find is some characters in a row, and those are found where the pattern is."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.flow.patterns.character_run import find_runs
from spillable_stream.flow.patterns.java_regex import translate

pytestmark = pytest.mark.usefixtures("any_data_is_searched")


def runs(pattern: str) -> list[str]:
    return ["".join(points.python() for points in run.sets) for run in translate(pattern).runs]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("ab", ["[a][b]"]),
        (".*ab.*", ["[a][b]"]),
        (r"\s*[^x]*?(ab)(?:c)?d*+", ["[a][b]"]),
        (r'"a":\d+', [r"[\x22][a][\x22][\x3a][0-9]"]),
        ("[01]+a{2}b{3,5}", ["[0-1][a][a][b][b][b]"]),
        (r"\Qa.\Eb", [r"[a][\x2e][b]"]),
        ("a++", ["[a]"]),
        ("x*a{2}+b", ["[a][a][b]"]),
        ("(?i)1a", ["[1][Aa]"]),
        ("(a*)b", ["[b]"]),
        (".*(a|bb).*", ["[a]", "[b][b]"]),
        ("1(a|b|)(?:c|d)", ["[1][a][c]", "[1][a][d]", "[1][b][c]", "[1][b][d]", "[1][c]", "[1][d]"]),
    ],
)
def test_the_run_of_a_pattern_is_what_its_ends_cannot_leave_out(pattern: str, found: list[str]) -> None:
    assert runs(pattern) == found


@pytest.mark.parametrize(
    "pattern",
    [
        *("", ".*", "(?i)a", "[ab]", "^a", r"a\b", "a$", "a(?=b)", "(a)\\1", "(?>a)b", "aé", "a.", "a[^b]", "ab*c"),
        *("a*+ab", "(ab)*c", "(a|b)*c", "a|b.", "a|", "a|b|c|d|e|f|g", "(a|b)(a|b)(a|b)", "a{65}"),
    ],
)
def test_a_pattern_that_looks_for_more_than_few_ascii_characters_in_a_row_has_no_run(pattern: str) -> None:
    assert runs(pattern) == []


PIECES = st.sampled_from(
    ["a", "(a|1)", "(?:b|ab|)", "|", "b", "1", ".", r"\d", "[ab]", "(a)", "(?:b)", "(a+)", "(?:.*)", r"\Qb\E"]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0}", "{1,2}", "{0,2}", "*?", "+?", "*+", "++", "?+"])
PATTERNS = st.lists(st.tuples(PIECES, REPEATS), min_size=1, max_size=6).map(lambda ps: "".join(p + r for p, r in ps))
BYTES = st.sampled_from([b"a", b"b", b"1", b"ab", b"\n", b"\xc3\xa9", b"\xff"])
BODIES = st.lists(st.lists(BYTES, max_size=8).map(b"".join), min_size=1, max_size=8)


@given(PATTERNS, BODIES, st.integers(0, 3))
def test_a_run_is_found_where_its_pattern_is(pattern: str, bodies: list[bytes], begin: int) -> None:
    try:
        translation = translate(pattern)
    except OptionError:
        return
    column, left = pa.array(bodies, pa.binary()).slice(begin), bodies[begin:]
    if not translation.runs or not b"".join(left):
        return
    found = find_runs(translation.runs, column)
    compiled = re.compile(translation.python, re.ASCII)
    assert found is not None
    assert found.to_pylist() == [compiled.search(body.decode(errors="replace")) is not None for body in left]
