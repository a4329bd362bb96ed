"""What some patterns find is some characters in a row, and those are found where the pattern is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.flow import byte_search
from spillable_stream.flow.java_regex import translate


@pytest.fixture(autouse=True, scope="module")
def any_data_is_searched() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_search, "_LEAST_BYTES", 1)
        patch.setattr(byte_search, "_BYTES_PER_CANDIDATE", 1)
        yield


def run_of(pattern: str) -> str | None:
    run = translate(pattern).run
    return None if run is None else "".join(points.python() for points in run.sets)


@pytest.mark.parametrize(
    ("pattern", "run"),
    [
        ("ab", "[a][b]"),
        (".*ab.*", "[a][b]"),
        (r"\s*[^x]*?(ab)(?:c)?d*+", "[a][b]"),
        (r'"a":\d+', r"[\x22][a][\x22][\x3a][0-9]"),
        ("[01]+a{2}b{3,5}", "[0-1][a][a][b][b][b]"),
        (r"\Qa.\Eb", r"[a][\x2e][b]"),
        ("a++", "[a]"),
        ("x*a{2}+b", "[a][a][b]"),
        ("(?i)1a", "[1][Aa]"),
        ("(a*)b", "[b]"),
        *((pattern, None) for pattern in ("", ".*", "(?i)a", "[ab]", "a|b", "^a", r"a\b", "a$", "a(?=b)", "(a)\\1")),
        *((pattern, None) for pattern in ("aé", "a.", "a[^b]", "ab*c", "a*+ab", "(ab)*c", "a{65}", "(?>a)b")),
    ],
)
def test_the_run_of_a_pattern_is_what_its_ends_can_not_leave_out(pattern: str, run: str | None) -> None:
    assert run_of(pattern) == run


PIECES = st.sampled_from(["a", "b", "1", ".", r"\d", "[ab]", "(a)", "(?:b)", "(a+)", "(?:.*)", r"\Qb\E"])
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0}", "{1,2}", "{0,2}", "*?", "+?", "*+", "++", "?+"])
PATTERNS = st.lists(st.tuples(PIECES, REPEATS), min_size=1, max_size=6).map(lambda ps: "".join(p + r for p, r in ps))
BODIES = st.lists(st.lists(st.sampled_from([b"a", b"b", b"1", b"ab", b"\n", b"\xc3\xa9", b"\xff"]), max_size=8).map(b"".join),
                  min_size=1, max_size=8)  # fmt: skip


@given(PATTERNS, BODIES, st.integers(0, 3))
def test_a_run_is_found_where_its_pattern_is(pattern: str, bodies: list[bytes], begin: int) -> None:
    try:
        translation = translate(pattern)
    except OptionError:
        return
    column, left = pa.array(bodies, pa.binary()).slice(begin), bodies[begin:]
    if translation.run is None or not b"".join(left):
        return
    found = translation.run.find(column)
    compiled = re.compile(translation.python, re.ASCII)
    assert found is not None
    assert found.to_pylist() == [compiled.search(body.decode(errors="replace")) is not None for body in left]
