"""Columns of texts say where each text ends, in slices too, and are made of ends and data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import SchemaError
from spillable_stream.flow import text_columns
from spillable_stream.flow.text_columns import repeated, spans_of, text_data, text_ends, texts_of

TEXTS = st.lists(st.text(max_size=4), max_size=8)


@given(TEXTS, st.integers(0, 8))
def test_each_text_lies_between_its_ends(texts: list[str], begin: int) -> None:
    column = pa.array(texts, pa.string()).slice(begin)
    ends, data = text_ends(column), text_data(column).tobytes()
    assert [data[a:b].decode() for a, b in pairwise(ends)] == texts[begin:]


@given(TEXTS)
def test_texts_are_made_of_their_lengths(texts: list[str]) -> None:
    raw = [text.encode() for text in texts]
    found = texts_of(np.array([len(r) for r in raw], np.int32), pa.py_buffer(b"".join(raw)))
    found.validate(full=True)
    assert found.to_pylist() == texts


def test_the_same_data_is_divided_elsewhere() -> None:
    column = pa.array(["a", "bc", "d", "e"])
    assert spans_of(column, text_ends(column)[::2]).to_pylist() == [b"abc", b"de"]


@given(TEXTS, st.integers(0, 4))
def test_texts_are_repeated(texts: list[str], count: int) -> None:
    found = repeated(texts, count)
    found.validate(full=True)
    assert found.to_pylist() == texts * count


def test_more_than_a_column_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_columns, "_MOST_BYTES", 9)
    with pytest.raises(SchemaError, match="put fewer events at once"):
        repeated(["abcd"], 3)
    with pytest.raises(SchemaError, match="larger than 2 GiB"):
        texts_of(np.array([5, 5], np.int32), None)
