"""A batch has the fingerprint of its events, however they lie in memory."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spillable_stream.errors import SchemaError
from spillable_stream.format.types import stored_schema
from spillable_stream.producer.fingerprint import fingerprint
from tests.support.arrow_values import ACCEPTED, LEAVES, nested


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_slice_has_the_fingerprint_of_a_copy(name: str) -> None:
    for how, column in nested(LEAVES[name]):
        batch = _batch(column)
        if not stored_schema(batch.schema).equals(batch.schema) or how == "runs" or name == "runs":
            continue  # categories are stored as what they stand for; Arrow can't join runs
        (around,) = pa.Table.from_batches([batch] * 3).combine_chunks().to_batches()
        assert fingerprint(around.slice(len(column), len(column))) == fingerprint(batch), how


def test_what_nulls_hide_does_not_count() -> None:
    hidden = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(b"\xff" * 16)])
    plain = pa.array([None, -1], pa.int64())
    assert hidden.equals(plain)
    assert fingerprint(_batch(hidden)) == fingerprint(_batch(plain))


def test_what_a_null_struct_or_list_hides_does_not_count() -> None:
    bits = pa.py_buffer(b"\x02")
    hidden, plain = pa.array([7, 1], pa.int64()), pa.array([0, 1], pa.int64())
    for kind in (pa.struct([("x", pa.int64())]), pa.list_(pa.int64(), 1)):
        first, second = (pa.Array.from_buffers(kind, 2, [bits], children=[c]) for c in (hidden, plain))
        assert first.equals(second) and fingerprint(_batch(first)) == fingerprint(_batch(second))


def test_categories_count_by_what_they_stand_for() -> None:
    first, second = (pa.array(v).dictionary_encode() for v in (["a", "b"], ["c", "d"]))
    assert fingerprint(_batch(first)) != fingerprint(_batch(second))


@pytest.mark.parametrize("t", [pa.timestamp("us"), pa.timestamp("s", "UTC"), pa.date32()])
def test_times_that_python_does_not_have_count(t: pa.DataType) -> None:
    """A channel stores them, so an application may number a batch with them."""
    number, most = (pa.int32() if t.bit_width == 32 else pa.int64()), 2 ** (t.bit_width - 1) - 1
    first, second = (pa.array([7, most - i], number).view(t) for i in (0, 1))
    for (how, one), (_, other) in zip(nested(first), nested(second), strict=True):
        if how == "categories":  # stored as what they stand for
            continue
        if how == "runs":
            with pytest.raises(SchemaError, match=r"a time that Python does not have .* send it without a sequence"):
                fingerprint(_batch(one))
            continue
        (around,) = pa.Table.from_batches([_batch(one)] * 3).combine_chunks().to_batches()
        assert fingerprint(_batch(one)) == fingerprint(around.slice(2, 2)) != fingerprint(_batch(other)), how


def test_other_events_have_another_fingerprint() -> None:
    found = [pa.array(v, pa.int64()) for v in ([], [0], [0, 0], [1], [None], [1, 2], [2, 1])]
    assert len({fingerprint(_batch(array)) for array in found}) == len(found)


def test_each_of_many_rows_counts() -> None:
    many = list(range(200_000))
    other = [*many[:-1], 0]
    assert fingerprint(_batch(pa.array(many))) != fingerprint(_batch(pa.array(other)))


def _batch(array: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([array], ["x"])
