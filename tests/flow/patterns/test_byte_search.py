"""Bytes are found wherever they are, as a search byte by byte finds them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.flow.patterns import byte_search
from spillable_stream.flow.patterns.byte_search import first_places, occurrences

pytestmark = pytest.mark.usefixtures("any_data_is_searched")


@given(st.data(), st.integers(1, 20), st.integers(0, 8))
def test_all_places_are_found_in_order(data: st.DataObject, size: int, begin: int) -> None:
    sought = bytes(data.draw(st.lists(st.sampled_from(b"ab"), min_size=size, max_size=size)))
    pieces = st.sampled_from([sought, sought[1:], sought[:-1], b"a", b"b", b"\xff"])
    text = b"x" * begin + b"".join(data.draw(st.lists(pieces, min_size=1, max_size=20)))
    found = occurrences(np.frombuffer(text, np.uint8)[begin:], sought) if text[begin:] else np.array([])
    expected = [i for i in range(len(text) - begin) if text.startswith(sought, begin + i)]
    assert found is not None and found.tolist() == expected


@pytest.mark.parametrize("text", [b"a", b"aaa"])
def test_fewer_bytes_than_are_sought_have_them_nowhere(text: bytes) -> None:
    found = occurrences(np.frombuffer(text, np.uint8), b"aaaaaaaa")
    assert found is not None and not len(found)


@given(st.lists(st.integers(0, 4)), st.sets(st.integers(0, 12)), st.integers(1, 3))
def test_the_first_place_in_each_text_is_one_that_ends_there(lengths: list[int], places: set[int], size: int) -> None:
    ends = np.cumsum([0, *lengths])
    inside = sorted(p for p in places if p + size <= ends[-1])
    found = first_places(np.array(inside, np.int64), size, ends).tolist()
    expected = [next((p for p in inside if begin <= p < end), None) for begin, end in pairwise(ends)]
    ends_there = [p is not None and p + size <= end for p, end in zip(expected, ends[1:], strict=True)]
    assert found == [p if fits else -1 for p, fits in zip(expected, ends_there, strict=True)]


def test_little_data_and_data_full_of_candidates_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(byte_search, "_LEAST_BYTES", 1000)
    monkeypatch.setattr(byte_search, "_BYTES_PER_CANDIDATE", 16)
    few, many = np.frombuffer(b"x" * 999, np.uint8), np.frombuffer(b"xxxxy" * 200, np.uint8)
    assert occurrences(few, b"y") is None
    assert occurrences(many, b"y") is None
    assert occurrences(many, b"z") is not None
