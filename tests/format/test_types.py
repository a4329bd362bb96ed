"""Every Arrow type: what is accepted is read back as it was, all else is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spillable_stream.errors import SchemaError
from spillable_stream.format import batch as batch_module
from spillable_stream.format.batch import (
    accept_batch,
    check_new_schema,
    check_written_schema,
    decode_batch,
    decode_schema,
    encode_batch,
    encode_schema,
    fit_batch,
    merge_schemas,
)
from tests.support.arrow_values import ACCEPTED, LEAVES, REFUSED, nested, not_utf8

CATEGORIES = pa.dictionary(pa.int8(), pa.string())


def one(column: pa.Array, nullable: bool = True) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column], schema=pa.schema([pa.field("c", column.type, nullable)]))


def taken_back(batch: pa.RecordBatch, stored: pa.Schema) -> pa.RecordBatch:
    """Accept a batch, write it, and read it with a schema that was written too."""
    (frame,) = encode_batch(accept_batch(batch, stored))
    found = decode_batch(pa.py_buffer(bytes(frame.payload)), decode_schema(encode_schema(stored)))
    found.validate(full=True)
    return found


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("leaf", ACCEPTED)
def test_every_type_that_is_accepted_reads_back_equal_and_the_rest_is_refused(leaf: str, compression: str) -> None:
    accepted = set()
    for kind, column in nested(LEAVES[leaf]):
        for batch in (one(column), one(column).slice(1), one(column).slice(2, 1), one(column.slice(1, 0))):
            try:
                stored = check_new_schema(batch.schema)
                fitted = accept_batch(batch, stored)
            except SchemaError:
                break
            frames = encode_batch(fitted, compression=compression)
            found = [decode_batch(pa.py_buffer(bytes(f.payload)), decode_schema(encode_schema(stored))) for f in frames]
            assert [row for b in found for row in b.to_pylist()] == batch.to_pylist()
            assert all(b.equals(fitted) for b in found)
            assert not found or found[0].schema.equals(batch.schema) or "categor" in leaf + kind
            older = fit_batch(pa.RecordBatch.from_arrays([pa.array([1])], ["other"]), stored)  # from before the column
            assert older.to_pylist() == [{"c": None}]
            older.validate(full=True)
        else:
            accepted.add(kind)
    assert {kind for kind, _ in nested(LEAVES[leaf])} - accepted == refusals(leaf)


def refusals(leaf: str) -> set[str]:
    """Return inside of what Arrow does not replace a dictionary by its values, make nulls, or read the type back."""
    inside = {"struct", "list", "large list", "fixed list", "map", "list in a struct in a list"}
    if leaf == "runs":
        return inside | {"list view", "extension", "categories"}
    if leaf.startswith("categories"):
        return {"list view", "extension", "runs"}
    return {"extension"} if isinstance(LEAVES[leaf].type, pa.BaseExtensionType) else set()


@pytest.mark.parametrize("leaf", sorted(REFUSED))
def test_types_that_not_everybody_can_read_are_refused_at_every_depth(leaf: str) -> None:
    for _, column in nested(LEAVES[leaf]):
        with pytest.raises(
            SchemaError, match=r"the column 'c' has the type .*, (which holds nothing but nulls|and unions)"
        ):
            check_new_schema(one(column).schema)
        with pytest.raises(SchemaError, match="the column 'c' has the type"):
            merge_schemas(pa.schema([("a", pa.int8())]), one(column).schema)


def test_categories_are_stored_as_their_values_with_all_that_the_schema_says() -> None:
    inside = pa.struct([pa.field("x", CATEGORIES, False, {"k": "v"})])
    schema = pa.schema(
        [
            pa.field("a", CATEGORIES, False, {"of": "a"}),
            ("b", pa.list_(inside)),
            ("c", pa.map_(CATEGORIES, CATEGORIES)),
        ],
        {"of": "schema"},
    )
    values = pa.struct([pa.field("x", pa.string(), False, {"k": "v"})])
    assert check_new_schema(schema).equals(
        pa.schema(
            [
                pa.field("a", pa.string(), False, {"of": "a"}),
                ("b", pa.list_(values)),
                ("c", pa.map_(pa.string(), pa.string())),
            ],
            {"of": "schema"},
        ),
        check_metadata=True,
    )


def test_a_channel_is_widened_by_the_values_of_categories() -> None:
    current = pa.schema([("a", pa.string())])
    assert merge_schemas(current, pa.schema([("a", CATEGORIES)])).equals(current)
    added = merge_schemas(current, pa.schema([("a", CATEGORIES), ("l", pa.list_(CATEGORIES))]))
    assert added.field("l").type.equals(pa.list_(pa.string()))


def test_nothing_is_written_with_a_schema_whose_values_an_earlier_version_did_not_store() -> None:
    with pytest.raises(SchemaError, match=r"'c' has the type .* whose values an earlier version did not store"):
        check_written_schema(pa.schema([("c", pa.list_(CATEGORIES))]))


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "a name that occurs twice"),
        (pa.list_(pa.timestamp("us", "Nowhere/Town")), "does not know the time zone 'Nowhere/Town'"),
        (pa.list_view(CATEGORIES), "a dictionary inside that can't be replaced"),
    ],
)
def test_types_whose_values_python_cannot_have_are_refused(type_: pa.DataType, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        check_new_schema(pa.schema([("c", type_)]))


@pytest.mark.parametrize("depth", [63, 64, 100])
def test_a_type_is_nested_as_deep_as_arrow_reads_it_back(depth: int) -> None:
    type_ = pa.int8()
    for _ in range(depth):
        type_ = pa.list_(type_)
    schema = pa.schema([("c", type_)])
    if depth < 64:
        assert check_new_schema(schema).equals(schema)
    else:
        with pytest.raises(SchemaError, match="which Arrow can't write and read back"):
            check_new_schema(schema)


# ── values ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_a_text_that_is_not_utf8_is_refused_at_every_depth(type_: pa.DataType) -> None:
    seen = []
    for kind, column in nested(not_utf8(type_)):
        with pytest.raises(SchemaError, match=r"the column 'c' is not sound: .*UTF8.*binary column"):
            accept_batch(one(column), one(column).schema)
        seen.append(kind)
        if kind == "extension":  # runs of it can't even be created
            break
    assert len(seen) >= 9


def test_a_slice_is_looked_at_without_what_is_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "_LARGE_BYTES", 0)
    texts = pa.ListArray.from_arrays(pa.array(range(4), pa.int32()), not_utf8())
    assert taken_back(one(texts).slice(2), one(texts).schema).to_pylist() == [{"c": ["c"]}]
    with pytest.raises(SchemaError, match="UTF8"):
        accept_batch(one(texts).slice(1), one(texts).schema)


def test_texts_hidden_by_nulls_and_texts_that_are_binary_harm_nobody() -> None:
    hidden = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), *pa.array([b"a", b"\xff", b"c"]).buffers()[1:]]
    )
    assert taken_back(one(hidden), one(hidden).schema).to_pylist() == [{"c": "a"}, {"c": None}, {"c": "c"}]
    binary = pa.array([b"\xff"])
    assert taken_back(one(binary), one(binary).schema).to_pylist() == [{"c": b"\xff"}]
    with pytest.raises(SchemaError, match="does not fit"):
        accept_batch(one(binary), pa.schema([("c", pa.string())]))


def test_arrays_whose_buffers_do_not_belong_together_are_refused() -> None:
    codes = pa.array([0, 9], pa.int8()).buffers()
    beyond = pa.DictionaryArray.from_buffers(CATEGORIES, 2, codes, pa.array(["a"]))
    offsets = pa.py_buffer(b"\0\0\0\0\x09\0\0\0\x02\0\0\0")
    backwards = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    seconds = pa.array([10**9], pa.int32()).view(pa.time32("s"))  # Python would get another time
    for column in (beyond, backwards, seconds):
        with pytest.raises(SchemaError, match="the column 'c' is not sound"):
            accept_batch(one(column), check_new_schema(one(column).schema))


def test_nulls_where_none_may_be_are_refused_also_in_a_batch_of_the_channels_own_schema() -> None:
    batch = one(pa.array([1, None]), nullable=False)
    with pytest.raises(SchemaError, match="'c' has nulls and is not nullable"):
        accept_batch(batch, batch.schema)
    coded = one(pa.DictionaryArray.from_arrays([0, 1], pa.array(["a", None])), nullable=False)
    with pytest.raises(SchemaError, match="'c' has nulls and is not nullable"):
        accept_batch(coded, check_new_schema(coded.schema))
