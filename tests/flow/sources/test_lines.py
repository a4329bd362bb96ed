from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.flow.sources.lines import cut_long, split_lines


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"bc", "ü".encode()])).map(b"".join))
def test_lines_are_those_that_end_in_a_line_feed(piece: bytes) -> None:
    lines = split_lines(piece, drop_cr=False)
    whole, _, rest = piece.rpartition(b"\n")
    assert lines.bodies.to_pylist() == (whole.split(b"\n") if b"\n" in piece else [])
    assert piece[lines.size_bytes :] == rest
    ends = [lines.end_of(i) for i in range(len(lines.starts) + 1)]
    assert [piece[a : b - 1] for a, b in itertools.pairwise(ends)] == lines.bodies.to_pylist()
    dropped = split_lines(piece, drop_cr=True)
    assert dropped.bodies.to_pylist() == [b.removesuffix(b"\r") for b in lines.bodies.to_pylist()]
    dropped.bodies.validate(full=True)


@given(st.lists(st.text("aü", max_size=9)), st.integers(1, 4))
def test_longer_lines_are_cut_between_characters(texts: list[str], most: int) -> None:
    piece = "".join(text + "\n" for text in texts).encode()
    cut = cut_long(split_lines(piece, drop_cr=False), most, piece)
    expected = [text[i : i + most] for text in texts for i in range(0, max(len(text), 1), most)]
    assert [body.decode() for body in cut.bodies.to_pylist()] == expected
    for body, start in zip(cut.bodies.to_pylist(), cut.starts.tolist(), strict=True):
        assert piece[start : start + len(body)] == body
    cut.bodies.validate(full=True)


@pytest.mark.parametrize("piece", [b"", b"no end"])
def test_without_a_line_feed_there_is_no_line(piece: bytes) -> None:
    assert split_lines(piece, drop_cr=True).size_bytes == 0
