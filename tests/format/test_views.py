from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from spillable_stream.format.batch import decode_batch, encode_batch
from spillable_stream.format.views import has_views, without_others
from tests.support.arrow_values import ACCEPTED, LEAVES, nested

ROWS = 100
VALUE_BYTES = 2000
VIEWS = [name for name in LEAVES if has_views(LEAVES[name].type) and name in ACCEPTED]


def texts(type_: pa.DataType) -> pa.Array:
    values = [None if i % 10 == 9 else chr(97 + i % 26) * VALUE_BYTES for i in range(ROWS)]
    return pa.array(values).cast(type_)


def lists(type_: pa.DataType) -> pa.Array:
    return pa.array([None if i % 10 == 9 else [i] * (VALUE_BYTES // 8) for i in range(ROWS)], type_)


def kinds_of_views() -> dict[str, pa.Array]:
    """Return columns of about the same size, by what they are."""
    kinds = {str(t): texts(t) for t in (pa.string_view(), pa.binary_view())}
    kinds |= {str(t): lists(t) for t in (pa.list_view(pa.int64()), pa.large_list_view(pa.int64()))}
    kinds["list view in another order"] = kinds[str(pa.list_view(pa.int64()))].take(
        pa.array([i * 37 % ROWS for i in range(ROWS)])
    )
    inside = {f"{name} of texts": column for name, column in nested(texts(pa.string_view()))}
    del inside["categories of texts"]  # stored as their values
    ends = pa.array(range(2, 2 * ROWS + 1, 2), pa.int32())
    inside["runs of texts"] = pa.RunEndEncodedArray.from_arrays(ends, texts(pa.string_view()))
    inside["list of lists"] = pa.ListArray.from_arrays(
        pa.array(range(ROWS + 1), pa.int32()), kinds["list view in another order"]
    )
    if "extension of texts" in inside:  # pyarrow 19 has some
        numbers, ones = pa.array(range(ROWS), pa.int32()), pa.array([1] * ROWS, pa.int32())
        of_texts = inside["extension of texts"]
        for name, column in (("extensions", of_texts), ("structs", pa.StructArray.from_arrays([of_texts], ["x"]))):
            inside[f"list view of {name}"] = pa.ListViewArray.from_arrays(numbers, ones, column)
    return kinds | inside


KINDS = kinds_of_views()


def of(column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column], ["c"])


@pytest.mark.parametrize("name", KINDS)
def test_slices_of_a_column_of_views_take_together_what_the_column_takes(name: str) -> None:
    batch = of(KINDS[name])
    frames = [f for start in range(0, batch.num_rows, 7) for f in encode_batch(batch.slice(start, 7))]
    assert sum(len(f.payload) for f in frames) < 1.2 * ROWS * VALUE_BYTES
    found = [decode_batch(pa.py_buffer(f.payload), batch.schema) for f in frames]
    for b in found:
        b.validate(full=True)
    assert [row for b in found for row in b.column(0).to_pylist()] == batch.column(0).to_pylist()


@pytest.mark.parametrize("name", KINDS)
def test_a_slice_of_a_slice_is_cut_to_its_own_values(name: str) -> None:
    batch = of(KINDS[name]).slice(13, 41)
    for start, count in [(0, 1), (3, 9), (40, 1), (8, 0)]:
        part = batch.slice(start, count)
        found = without_others(part)
        found.validate(full=True)
        assert found.to_pylist() == part.to_pylist()
        assert found.nbytes < 1.2 * count * VALUE_BYTES + 1000
        assert without_others(found) is found


@pytest.mark.parametrize("kind", ["itself", "struct", "list", "map", "list view", "list in a struct in a list"])
@pytest.mark.parametrize("name", VIEWS)
def test_each_kind_of_view_reads_back_from_any_slice(name: str, kind: str) -> None:
    column = dict(nested(pa.concat_arrays([LEAVES[name]] * 40)))[kind]
    for start in (0, 1, 119):
        part = of(column).slice(start, 1)
        found = without_others(part)
        found.validate(full=True)
        assert found.schema.equals(part.schema)
        assert found.to_pylist() == part.to_pylist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: of(texts(pa.string_view())),
        lambda: of(lists(pa.list_view(pa.int64()))),
        lambda: of(texts(pa.string())).slice(3, 2),
        lambda: of(pa.RunEndEncodedArray.from_arrays(pa.array(range(1, ROWS + 1), pa.int32()), texts(pa.string()))),
    ],
    ids=["all texts", "all lists", "no views", "runs without views"],
)
def test_what_holds_little_else_is_not_copied(make: Callable[[], pa.RecordBatch]) -> None:
    batch = make()
    assert without_others(batch) is batch


def test_a_value_that_many_rows_share_stays_shared() -> None:
    one = pa.array(["x" * VALUE_BYTES], pa.string_view())
    validity, views, data = one.buffers()
    shared = pa.Array.from_buffers(one.type, ROWS, [validity, pa.py_buffer(views.to_pybytes()[:16] * ROWS), data], 0)
    (frame,) = encode_batch(of(shared))
    assert len(frame.payload) < 3 * VALUE_BYTES
    lists_of = pa.ListViewArray.from_arrays(
        pa.array([0] * ROWS, pa.int32()), pa.array([1000] * ROWS, pa.int32()), pa.array(range(1000))
    )
    (frame,) = encode_batch(of(lists_of))
    assert len(frame.payload) < 2 * 8000


@pytest.mark.parametrize("type_", [pa.string_view(), pa.list_(pa.binary_view()), pa.list_view(pa.binary())], ids=str)
def test_a_large_batch_of_views_is_cut_into_few_frames(type_: pa.DataType) -> None:
    value: object = "x" * 200_000 if type_ == pa.string_view() else [b"x" * 200_000]
    batch = of(pa.array([value] * 100, type_))
    frames = encode_batch(batch)
    assert len(frames) <= 11
    assert sum(len(f.payload) for f in frames) < 1.1 * 20_000_000
    assert [row for f in frames for row in decode_batch(f.payload, batch.schema).column(0).to_pylist()] == [value] * 100
