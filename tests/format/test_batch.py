from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import EventTooLargeError, SchemaError
from spillable_stream.format import batch as batch_module
from spillable_stream.format.batch import (
    EVENT_SCHEMA,
    FAR_FRAME_BYTES,
    FRAME_BYTES,
    accept_batch,
    check_columns,
    decode_batch,
    decode_schema,
    encode_batch,
    encode_schema,
    fit_batch,
    merge_schemas,
)
from spillable_stream.format.frame import FrameType

HEADERS = st.one_of(st.none(), st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.text(max_size=5))))


def event_batch(rows: list[tuple[dict[str, str | None] | None, bytes | None]]) -> pa.RecordBatch:
    headers = pa.array([None if h is None else list(h.items()) for h, _ in rows], EVENT_SCHEMA.field(0).type)
    return pa.RecordBatch.from_arrays([headers, pa.array([b for _, b in rows], pa.binary())], schema=EVENT_SCHEMA)


def decoded(batch: pa.RecordBatch, compression: str = "none") -> pa.Table:
    frames = list(encode_batch(batch, compression=compression))
    assert all(f.type == FrameType.PUT for f in frames)
    found = [decode_batch(pa.py_buffer(f.payload), batch.schema) for f in frames]
    assert [f.count for f in frames] == [b.num_rows for b in found]
    return pa.Table.from_batches(found, batch.schema)


@given(rows=st.lists(st.tuples(HEADERS, st.one_of(st.none(), st.binary(max_size=50))), min_size=1, max_size=20))
def test_any_events_read_back(rows: list[tuple[dict[str, str | None] | None, bytes | None]]) -> None:
    batch = event_batch(rows)
    assert decoded(batch).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_events_read_back_and_are_smaller(compression: str) -> None:
    batch = event_batch([({"k": "v"}, b"the same again " * 100)] * 100)
    assert decoded(batch, compression).equals(pa.Table.from_batches([batch]))
    plain, small = (sum(len(f.payload) for f in encode_batch(batch, compression=c)) for c in ("none", compression))
    assert small < plain / 10


def test_an_empty_batch_has_no_frames() -> None:
    assert list(encode_batch(event_batch([]))) == []


def test_a_slice_is_written_without_the_rows_around_it() -> None:
    batch = event_batch([({"k": "v"}, bytes(1000)) for _ in range(1000)])
    (frame,) = encode_batch(batch.slice(500, 2))
    assert len(frame.payload) < 4000
    assert decode_batch(pa.py_buffer(frame.payload), EVENT_SCHEMA).equals(batch.slice(500, 2))


def test_a_large_batch_is_cut_into_frames_in_order() -> None:
    batch = pa.record_batch({"x": pa.array(range(5_000_000), pa.int64())})
    frames = list(encode_batch(batch))
    assert 19 <= len(frames) <= 21
    assert max(len(f.payload) for f in frames) < 1.1 * FRAME_BYTES
    assert decoded(batch).column("x").to_pylist() == list(range(5_000_000))


def test_a_batch_for_a_store_is_cut_into_smaller_frames() -> None:
    batch = pa.record_batch({"x": pa.array(range(1_000_000), pa.int64())})
    frames = encode_batch(batch, frame_bytes=FAR_FRAME_BYTES)
    assert 7 <= len(frames) <= 9
    assert max(len(f.payload) for f in frames) < 2 * FAR_FRAME_BYTES
    assert decoded(batch).equals(pa.Table.from_batches([batch]))


def test_rows_of_uneven_size_are_halved_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MAX_PAYLOAD_BYTES", 2000)
    batch = event_batch([({}, b"small")] * 7 + [({}, bytes(1200))] * 2)
    frames = list(encode_batch(batch))
    assert len(frames) > 1
    assert decoded(batch).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("frame_bytes", [FRAME_BYTES, FAR_FRAME_BYTES])
def test_a_large_batch_of_rows_of_any_sizes_is_cut_into_no_small_frames(frame_bytes: int) -> None:
    """Each frame costs a reader, and is a block of the index."""
    sizes = random.Random(7)
    batch = pa.record_batch({"x": [bytes(sizes.randrange(2000)) for _ in range(20_000)]})
    frames = encode_batch(batch, frame_bytes=frame_bytes)
    assert min(len(frame.payload) for frame in frames) > frame_bytes / 2
    assert max(len(frame.payload) for frame in frames) < 1.3 * frame_bytes


def test_one_event_that_no_frame_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MAX_PAYLOAD_BYTES", 2000)
    with pytest.raises(EventTooLargeError, match=r"does not fit a frame of 2,000 bytes"):
        list(encode_batch(event_batch([({}, bytes(3000))])))


def test_a_schema_reads_back_with_its_metadata() -> None:
    schema = pa.schema([pa.field("a", pa.list_(pa.decimal128(20, 3)), False, {"k": "v"})], {"of": "schema"})
    assert decode_schema(encode_schema(schema)).equals(schema, check_metadata=True)


A, B, C = pa.field("a", pa.int64()), pa.field("b", pa.string()), pa.field("c", pa.bool_())
STRICT = pa.field("s", pa.int32(), nullable=False)


def test_columns_may_be_reordered_and_left_out() -> None:
    current = pa.schema([A, B, C])
    assert merge_schemas(current, pa.schema([C, A])).equals(current)


@pytest.mark.parametrize(
    ("name", "current", "why"),
    [
        ("x", pa.schema([A]), "leave it out, or add it with Channel.evolve"),
        ("x", EVENT_SCHEMA, "an event channel has no column 'x': put rows into a typed channel, made with schema="),
        ("__index_level_0__", pa.schema([A]), r"the index of a data frame: reset_index\(drop=True\) removes it"),
    ],
)
def test_a_column_that_is_not_there_is_refused_with_what_to_do(name: str, current: pa.Schema, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        check_columns(pa.schema([(name, pa.int64())]), current)


def test_a_schema_that_does_not_fit_is_not_said_to_be_the_channels() -> None:
    with pytest.raises(SchemaError, match=r"missing.* The channel has \(s: int32 not null\); what is given has \(a: "):
        merge_schemas(pa.schema([STRICT]), pa.schema([A]))


def test_a_new_nullable_column_is_appended() -> None:
    assert merge_schemas(pa.schema([A]), pa.schema([B, A])).names == ["a", "b"]


@pytest.mark.parametrize(
    ("incoming", "why"),
    [
        (pa.schema([pa.field("a", pa.string()), STRICT]), "'a' has another type"),
        (pa.schema([A, STRICT, pa.field("n", pa.int8(), nullable=False)]), "new column 'n' is not nullable"),
        (pa.schema([A]), "'s' is missing and not nullable"),
        (pa.schema([A, A, STRICT]), "occurs twice"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_schemas(incoming: pa.Schema, why: str) -> None:
    with pytest.raises(SchemaError, match=why) as caught:
        merge_schemas(pa.schema([A, STRICT]), incoming)
    assert "The channel has (a: int64, s: int32 not null)" in str(caught.value)
    assert "what is given has (" in str(caught.value)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin")),
        (pa.string(), pa.dictionary(pa.int32(), pa.string())),
        (pa.list_(pa.string()), pa.large_list(pa.large_string())),
        (pa.map_(pa.string(), pa.binary()), pa.map_(pa.large_string(), pa.large_binary())),
        (pa.struct([("x", pa.string())]), pa.struct([("x", pa.large_string())])),
    ],
)
def test_other_widths_and_zones_of_one_type_fit(mine: pa.DataType, theirs: pa.DataType) -> None:
    current = pa.schema([("x", mine)])
    assert merge_schemas(current, pa.schema([("x", theirs)])).equals(current)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.int32(), pa.int64()),
        (pa.struct([("x", pa.int8())]), pa.struct([("y", pa.int8())])),
        (pa.list_(pa.int8()), pa.list_(pa.int16())),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
    ],
)
def test_other_types_do_not_fit(mine: pa.DataType, theirs: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="has another type"):
        merge_schemas(pa.schema([("x", mine)]), pa.schema([("x", theirs)]))


def test_a_batch_is_fitted_to_the_schema_by_name() -> None:
    schema = pa.schema([A, B, C])
    fitted = fit_batch(pa.record_batch({"c": [True], "b": pa.array(["x"], pa.large_string())}), schema)
    assert fitted.schema.equals(schema)
    assert fitted.to_pylist() == [{"a": None, "b": "x", "c": True}]


def test_a_null_in_a_column_that_has_none_is_refused() -> None:
    with pytest.raises(SchemaError, match="'s' has nulls and is not nullable"):
        fit_batch(pa.record_batch({"s": pa.array([1, None], pa.int32())}), pa.schema([STRICT]))


def test_which_columns_may_have_nulls_each_schema_says_for_itself() -> None:
    strict, lax = pa.schema([STRICT]), pa.schema([pa.field("s", pa.int32())])
    for schema in (lax, strict, lax, strict):
        batch = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int32())], schema=schema)
        if schema is lax:
            assert accept_batch(batch, schema) is batch
        else:
            with pytest.raises(SchemaError, match="'s' has nulls and is not nullable"):
                accept_batch(batch, schema)


def test_a_value_that_cannot_be_cast_is_refused() -> None:
    with pytest.raises(SchemaError, match="'a' does not fit"):
        fit_batch(pa.record_batch({"a": ["no number"]}), pa.schema([A]))


_STRICT_INSIDE = pa.struct([pa.field("x", pa.binary(), nullable=False)])
_LOOSE_INSIDE = pa.struct([pa.field("x", pa.binary())])


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        (lambda s: s, [{"x": b"1"}, None, {"x": b""}]),
        (lambda s: pa.list_(s), [[{"x": b"1"}, None], None, [], [{"x": b"2"}]]),
        (lambda s: pa.struct([pa.field("s", s)]), [{"s": {"x": b"1"}}, {"s": None}, None]),
        (lambda s: pa.map_(pa.string(), s), [[("k", {"x": b"1"}), ("n", None)], None, []]),
        (lambda s: pa.list_(s, 1), [[{"x": b"1"}], [None], None]),
        (lambda s: pa.list_view(s), [[{"x": b"1"}, None], None, []]),
    ],
    ids=["struct", "list", "struct of struct", "map", "fixed list", "list view"],
)
def test_fields_of_a_null_struct_need_not_be_there(of, rows) -> None:
    column = pa.array(rows, of(_LOOSE_INSIDE))
    fitted = fit_batch(pa.record_batch({"c": column}), pa.schema([pa.field("c", of(_STRICT_INSIDE))]))
    assert fitted.schema.field("c").type == of(_STRICT_INSIDE)
    assert fitted["c"].to_pylist() == rows
    sliced = fit_batch(pa.record_batch({"c": column}).slice(1), fitted.schema)
    assert sliced["c"].to_pylist() == rows[1:]


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        (lambda s: s, [{"x": b"1"}, {"x": None}]),
        (lambda s: pa.list_(s), [[{"x": b"1"}, None], [{"x": None}]]),
        (lambda s: pa.struct([pa.field("s", s)]), [{"s": {"x": None}}, {"s": None}, None]),
        (lambda s: pa.map_(pa.string(), s), [[("k", {"x": None}), ("n", None)], None, []]),
        (lambda s: pa.list_(s, 1), [[{"x": None}], [None], None]),
        (lambda s: pa.list_view(s), [[{"x": None}, None], None, []]),
    ],
    ids=["struct", "list", "struct of struct", "map", "fixed list", "list view"],
)
def test_null_in_a_field_that_has_none_is_refused(of, rows) -> None:
    column = pa.array(rows, of(_LOOSE_INSIDE))
    with pytest.raises(SchemaError, match="the column 'c' does not fit: there is a null where"):
        fit_batch(pa.record_batch({"c": column}), pa.schema([pa.field("c", of(_STRICT_INSIDE))]))


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        (lambda s: s, [{"x": b"1"}, {"x": None}]),
        (lambda s: pa.list_(s), [[{"x": b"1"}, None], [{"x": None}]]),
        (lambda s: pa.map_(pa.string(), s), [[("k", {"x": None}), ("n", None)], None, []]),
        (lambda s: pa.list_view(s), [[{"x": None}, None], None, []]),
    ],
    ids=["struct", "list", "map", "list view"],
)
def test_such_a_null_is_refused_too_where_the_columns_are_those_of_the_channel(of, rows) -> None:
    """As a row that has it is, and a batch whose column has another type."""
    schema = pa.schema([A, pa.field("c", of(_STRICT_INSIDE))])
    column = pa.array(rows, of(_STRICT_INSIDE))
    for batch in (
        pa.RecordBatch.from_arrays([pa.nulls(len(rows), A.type), column], schema=schema),
        pa.RecordBatch.from_arrays([column], schema=pa.schema([schema.field("c")])),
    ):
        with pytest.raises(SchemaError, match="the column 'c' has a null where its type has none"):
            accept_batch(batch, schema)
        with pytest.raises(SchemaError, match="the column 'c' has a null where its type has none"):
            accept_batch(batch.slice(0, 2), schema)
    good = batch.slice(0, 0)
    assert accept_batch(good, good.schema) is good
