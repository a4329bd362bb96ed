"""What Java's regular expressions find, these find: a table of Java's own answers says it."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.flow.patterns.regex import JavaPattern, Replacement, Texts
from tests.support.java.make_answers import ANSWERS

pytestmark = pytest.mark.usefixtures("any_data_is_searched")

TABLE = json.loads(gzip.decompress(ANSWERS.read_bytes()))

# Patterns that Java takes and that are refused here, in words, rather than run in another meaning.
NOT_SUPPORTED = {
    r"\p{javaLowerCase}": "is not supported",
    "(?u)é": "flags u and U are not supported",
    "(?U)\\w": "flags u and U are not supported",
    "(?iu)É": "flags u and U are not supported",
    "(?<=a|bb)b": "look-behind requires fixed-width pattern",
    "[a&&]": "a && without characters behind it",
    r"\1(a)": "group 1 does not end before it is referred to",
}


def java_is_wrong(pattern: JavaPattern, text: str, about: str) -> bool:
    """Java leaves behind what a group matched in a look-ahead that must fail, and finds nothing within a character."""
    if about == "groups":
        return "(?!" in pattern.translation.java
    return pattern.translation.may_be_empty and any(ord(c) > 0xFFFF for c in text)


def cases() -> list[tuple[str, str, list[Any] | None]]:
    return [(pattern, replacement, answers) for pattern, replacement, answers in TABLE["patterns"]]


SOME_AND_ALL = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])  # of the cases


@cache  # they are thousands
def compiled(pattern: str) -> JavaPattern:
    return JavaPattern(pattern)


def column(texts: list[str]) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.binary())


def disagreements(pattern: str, replacement: str, answers: list[Any]) -> list[object]:
    """Return where our answers differ from Java's."""
    java = compiled(pattern)
    texts = TABLE["texts"][: len(answers)]
    bodies = column(texts)
    found = java.find(bodies).to_pylist()
    valid, groups = java.extract(Texts.of(bodies))
    try:
        replaced = java.replace(bodies, Replacement(replacement, java.translation)).to_pylist()
    except OptionError:
        replaced = None
    wrong: list[object] = []
    for i, (is_found, fits, text, of_groups) in enumerate(answers):
        ours = [group[i].as_py() for group in groups]
        if (found[i], valid[i].as_py()) != (is_found, is_found):
            wrong.append((pattern, texts[i], "find", is_found, java.engine))
        if java.fits_whole(texts[i]) != fits:
            wrong.append((pattern, texts[i], "fits", fits))
        if is_found and not java_is_wrong(java, texts[i], "groups") and ours != [group or "" for group in of_groups]:
            wrong.append((pattern, texts[i], "groups", of_groups, ours, java.engine))
        if (
            is_found
            and not java_is_wrong(java, texts[i], "replace")
            and text != (None if replaced is None else replaced[i].decode())
        ):
            wrong.append((pattern, replacement, texts[i], "replace", text, replaced and replaced[i], java.engine))
    return wrong


@SOME_AND_ALL
def test_what_java_refuses_is_refused_and_what_it_takes_is_taken(every: int) -> None:
    for pattern, _, answers in cases()[::every]:
        try:
            compiled(pattern)
        except OptionError as e:
            assert answers is None or NOT_SUPPORTED[pattern] in str(e), f"{pattern!r}: {e}"
            assert repr(pattern) in str(e)
        else:
            assert answers is not None, f"Java refuses {pattern!r}"


@SOME_AND_ALL
def test_every_answer_is_javas(every: int) -> None:
    wrong = []
    for pattern, replacement, answers in cases()[::every]:
        if answers is not None and pattern not in NOT_SUPPORTED:
            wrong += disagreements(pattern, replacement, answers)
    assert not wrong, "\n".join(map(repr, wrong[:40]))


def test_most_patterns_of_real_files_run_in_re2() -> None:
    for pattern in (
        r"^(\S+) (\S+)",
        ".*ERROR.*",
        r"(\d+):(\d+):(\d+)",
        "^$",
        r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s+(\w+)",
        "(?i)error",
        r"\bx\b",
    ):
        assert JavaPattern(pattern).engine == "RE2", JavaPattern(pattern).translation.why_not_re2


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)b", "RE2 has no look-ahead"),
        ("(?<=a)b", "RE2 has no look-behind"),
        (r"(a)\1", "RE2 has no references to groups"),
        ("a++", "RE2 has no possessive repetition"),
        ("(?>a)", "RE2 has no atomic groups"),
        ("a{2000}", "RE2 repeats at most 1,000 times"),
        ("(a*)*", "engines differ in the repetition of what may be empty"),
        ("(a$)b", "RE2 can't look behind a $ inside of a pattern"),
        ("(?m)^a", "RE2's lines end with \\n only"),
    ],
)
def test_it_says_why_a_pattern_runs_in_python(pattern: str, why: str) -> None:
    java = JavaPattern(pattern)
    assert (java.engine, java.translation.why_not_re2) == ("re", why)


def test_it_says_for_which_texts_re2_is_left_out() -> None:
    words, end = JavaPattern(r"\bx").translation, JavaPattern("x$").translation
    assert words.ascii_only and words.why_not_re2 == "texts beyond ASCII: RE2 knows ASCII words only"
    assert end.without_cr and end.why_not_re2 == "texts with carriage returns: RE2 can't look before a line end"


def test_bodies_that_are_not_text_are_read_with_replacement_characters_and_left_alone_where_nothing_is_replaced() -> (
    None
):
    bodies = pa.array([b"a\xffb", b"ab"], pa.binary())
    assert JavaPattern("a\ufffdb").find(bodies).to_pylist() == [True, False]
    java = JavaPattern("a")
    assert java.replace(bodies, Replacement("c", java.translation)).to_pylist() == [b"c\xffb", b"cb"]


@pytest.mark.parametrize(
    ("replacement", "says"),
    [
        ("$2", "names group 2, and '\\(a\\)' has 1 group"),
        ("${n}", "names a group that '\\(a\\)' does not have: 'n'"),
        ("a$", "has a \\$ without a group; write"),
        ("a\\", "ends with a backslash"),
    ],
)
def test_a_replacement_that_names_nothing_is_refused(replacement: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Replacement(replacement, JavaPattern("(a)").translation)


@pytest.mark.parametrize(
    ("text", "parts"), [("a, b ,c", ["a", "b", "c"]), ("a", ["a"]), ("a,,", ["a"]), (",a", ["", "a"]), ("", [""])]
)
def test_a_text_is_split_as_java_does(text: str, parts: list[str]) -> None:
    assert JavaPattern(r"\s*,\s*").split(text) == parts


SIMPLE = st.text("ab.*+?()[]^$|\\dsw\n", max_size=8)


@given(SIMPLE, st.lists(st.text("ab1 \n\ré", max_size=5), max_size=5))
def test_whatever_is_accepted_means_the_same_in_both_engines(pattern: str, texts: list[str]) -> None:
    try:
        java = JavaPattern(pattern)
    except OptionError:
        return
    found = java.find(column(texts)).to_pylist()
    valid, groups = java.extract(Texts.of(column(texts)))
    assert found == valid.to_pylist() == [java.compiled.search(text) is not None for text in texts]
    for i, text in enumerate(texts):
        if (match := java.compiled.search(text)) is not None:
            assert [group[i].as_py() for group in groups] == [g or "" for g in match.groups()]
