from __future__ import annotations

import re

import javaproperties
import javaproperties.reading
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.flow.configuration.properties import Entry, decode, read_properties, trim


def entries(text: str) -> list[tuple[int, str, str]]:
    return [(e.line, e.key, e.value) for e in read_properties(text.encode(), "f").entries]


def problems(text: str | bytes) -> list[tuple[int, str]]:
    content = text if isinstance(text, bytes) else text.encode()
    return [(p.at.line, p.code) for p in read_properties(content, "f").problems]


def test_keys_end_at_an_equals_sign_a_colon_or_a_blank() -> None:
    assert entries("a.b = c\na.d:e\na.f g h\na.i") == [
        (1, "a.b", "c"),
        (2, "a.d", "e"),
        (3, "a.f", "g h"),
        (4, "a.i", ""),
    ]


def test_comments_and_empty_lines_count_as_lines() -> None:
    assert entries("# one\n\n! three\n  a.b = c\r\n\r\na.d = e") == [(4, "a.b", "c"), (6, "a.d", "e")]


def test_a_backslash_continues_a_line_and_the_entry_is_where_it_begins() -> None:
    assert entries("a.b = c1 \\\n   c2 \\\n   c3\na.d = e") == [(1, "a.b", "c1 c2 c3"), (4, "a.d", "e")]


def test_a_single_backslash_before_another_character_vanishes() -> None:
    assert entries(r"a.b = .*\.log\\d\u00e9") == [(1, "a.b", ".*.log\\dé")]


def test_names_and_values_are_trimmed_as_java_does() -> None:
    assert trim(" \x00\tx\N{NO-BREAK SPACE} ") == "x\N{NO-BREAK SPACE}"
    assert entries("a.b\t =  c  \na.d = e\\ ") == [(1, "a.b", "c"), (2, "a.d", "e")]


def test_a_file_that_is_not_utf_8_is_latin_1() -> None:
    assert decode("Straße".encode()) == ("Straße", True)
    assert decode("Straße".encode("latin-1")) == ("Straße", False)
    assert problems(b"a.b = \xdf") == [(0, "latin-1")]


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert entries("\N{BYTE ORDER MARK}a.b = c") == [(1, "a.b", "c")]


def test_a_malformed_escape_costs_its_line_only() -> None:
    text = "a.b = c\na.d = \\u00zz \\\n  more\na.f = g"
    assert entries(text) == [(1, "a.b", "c"), (4, "a.f", "g")]
    assert problems(text) == [(2, "malformed-line")]
    assert read_properties(text.encode(), "f").problems[0].at.key == "a.d"


def test_malformed_escapes_cost_no_look_at_what_is_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    whole = javaproperties.reading.ascii_splitlines

    def counting(text: str) -> list[str]:
        nonlocal read
        read += len(text)
        return whole(text)

    monkeypatch.setattr(javaproperties.reading, "ascii_splitlines", counting)
    content = b"a = \\uxx\n" * 500
    assert len(read_properties(content, "f").problems) == 500
    assert read <= 2 * len(content)


def test_a_line_of_many_lines_costs_no_look_at_the_first_ones_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    read, real = 0, javaproperties.reading.CONTINUED_RGX

    class Counting:
        def search(self, line: str) -> object:
            nonlocal read
            read += len(line)
            return real.search(line)

    monkeypatch.setattr(javaproperties.reading, "CONTINUED_RGX", Counting())
    content = b"a.b = \\\n" + b"  x \\\n" * 500
    assert entries(content.decode()) == [(1, "a.b", "x " * 499 + "x")]
    assert read <= 2 * len(content)


def test_a_line_that_is_continued_begins_no_comment_and_a_comment_is_not_continued() -> None:
    assert entries("\\\n#a.b = c\n# d \\\na.f = g") == [(1, "#a.b", "c"), (4, "a.f", "g")]
    assert entries("\\\n\\\n\na.f = g\n\\") == [(4, "a.f", "g")]


def test_a_lost_backslash_is_found_but_not_one_that_escapes() -> None:
    assert problems("a.b = \\d\n") == [(1, "lost-backslash")]
    assert problems("a.b = \\\\d \\\\\\\\. \\t \\u0041 \\: \\= \\# \\! a\\ b\na.c = \\\n d") == []
    assert problems("a.b = \\\\\\d") == [(1, "lost-backslash")]


def test_a_comment_behind_a_value_is_found_but_not_a_hash_in_a_word() -> None:
    assert problems("a.b = 30  # seconds") == [(1, "comment-in-value")]
    assert problems("a.b = C#\na.c = a#b\na.d = #1") == []


def test_a_key_given_twice_is_found_once_in_each_file() -> None:
    text = "a.b = 1\na.b = 1\na.b = 2"
    assert problems(text) == [(2, "duplicate-key"), (3, "duplicate-key")]
    texts = [p.text for p in read_properties(text.encode(), "f").problems]
    assert "again" in texts[0] and "line 2" in texts[1] and "another value" in texts[1]


def test_an_entry_keeps_what_the_file_has() -> None:
    assert read_properties(b"a.b = ${c}", "f").entries == [Entry("a.b", "${c}", "f", 1, "${c}")]


PIECES = st.sampled_from(
    ["a", "b.c", "=", ":", " ", "\t", "\f", "\\", "\\\\", "\\n", "\\u0041", "#", "!", "\n", "\r\n", "\r", "é", "\xa0"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_has_the_keys_values_and_lines_that_javaproperties_finds(text: str) -> None:
    if "\\uu" in text:  # two pieces that make a malformed escape
        return
    try:
        expected = [(trim(k), trim(v)) for k, v in javaproperties.loads(text, object_pairs_hook=list)]
    except javaproperties.InvalidUEscapeError:
        return
    reading = read_properties(text.encode(), "f")
    comments = {p.at.line for p in reading.problems if p.code == "comment"}
    assert not comments, "no piece begins a comment of another language"
    assert [(e.key, e.value) for e in reading.entries] == expected
    lines = re.split(r"\r\n|\r|\n", text)
    for entry in reading.entries:
        assert 1 <= entry.line <= len(lines)
        rest = "\n".join(lines[entry.line - 1 :])
        first = next(iter(javaproperties.loads(rest, object_pairs_hook=list)), None)
        assert first is not None and (trim(first[0]), trim(first[1])) == (entry.key, entry.value)


@given(st.lists(st.one_of(PIECES, st.just("\\u00"), st.just("zz")), max_size=25).map("".join))
def test_a_malformed_escape_never_hides_another_line(text: str) -> None:
    reading = read_properties((text + "\nlast.key = value\n").encode(), "f")
    last = reading.entries[-1] if reading.entries else None
    continued = re.search(r"(?<!\\)(\\\\)*\\\r?$", text)
    if continued is None:
        assert last is not None and (last.key, last.value) == ("last.key", "value")
