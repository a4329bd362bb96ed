"""Which columns fit into which, at every depth, and what becomes of their values."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import accept_batch, check_columns
from spillable_stream.format.conversion import cast_column
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.format.widening import misfit
from tests.support.arrow_values import nested

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal128(p, s) for p, s in [(3, 0), (5, 0), (5, 2), (9, 4), (10, 0), (19, 0), (20, 0), (21, 2), (38, 9)]
]
NUMBERS = [*INTEGERS, *FLOATS, *DECIMALS]
TIMES = [
    *[pa.timestamp(unit, zone) for zone in (None, "UTC", "Asia/Tokyo") for unit in ("s", "ms", "us")],
    *[pa.duration(unit) for unit in ("s", "ms", "us")],
    *[pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.date32(), pa.date64()],
]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(3)]


def extremes(t: pa.DataType) -> list[Any]:
    """Return values of a type, at its ends among them; of times, at the ends of what Python knows."""
    if pa.types.is_integer(t):
        bits = t.bit_width
        return [0, 2**bits - 1] if not pa.types.is_signed_integer(t) else [0, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    if pa.types.is_floating(t):
        largest = b"\x7f\x7f\xff\xff" if t.bit_width == 32 else b"\x7f\xef" + b"\xff" * 6
        smallest = b"\x00\x00\x00\x01".rjust(t.bit_width // 8, b"\0")
        return [struct.unpack(">f" if t.bit_width == 32 else ">d", v)[0] for v in (largest, smallest)] + [0.1, -1.5]
    if pa.types.is_decimal(t):
        return [Decimal((0, (9,) * t.precision, -t.scale)), Decimal((1, (1,), -t.scale))]
    if pa.types.is_timestamp(t):
        ends = [dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30, 23, 59, 59)]
        return ends if t.tz is None else [d.replace(tzinfo=dt.UTC) for d in ends]
    if pa.types.is_duration(t):
        return [dt.timedelta(days=-999_999), dt.timedelta(days=999_999)]
    if pa.types.is_time(t):
        return [dt.time(0), dt.time(23, 59, 59)]
    if pa.types.is_date(t):
        return [dt.date.min, dt.date.max]
    return ["", "żół", "🐢"] if t in TEXTS[:2] else [b"abc", b"\xff\0\xff"]


def column_of(t: pa.DataType) -> pa.Array:
    return pa.array([*extremes(t), None], t)


def is_kept(column: pa.Array, target: pa.DataType) -> bool:
    """Tell whether Arrow's own casts there and back change nothing, and Python sees equal values on the way."""
    try:
        found = column.cast(target)
        return found.to_pylist() == column.to_pylist() and found.cast(column.type).equals(column)
    except NOT_ARROW:
        return False


def pairs(types: list[pa.DataType]) -> Iterator[Any]:
    return (pytest.param(a, b, id=f"{a} into {b}") for a in types for b in types)


@pytest.mark.parametrize(("source", "target"), pairs(NUMBERS))
def test_a_number_takes_another_exactly_if_it_has_each_of_its_values(source: pa.DataType, target: pa.DataType) -> None:
    if pa.types.is_floating(source) and not pa.types.is_floating(target):
        assert misfit(source, target, "c")
        return
    # Arrow's cast into floats refuses more than it must: an integer beyond the exact ones, even if it is a power of 2.
    held = all(is_kept(pa.array([v], source), target) for v in extremes(source))
    if pa.types.is_decimal(source) and not pa.types.is_decimal(target):
        held = False  # its scale would be lost
    assert (misfit(source, target, "c") == "") == held
    if held:
        assert cast_column(column_of(source), target).equals(column_of(source).cast(target))


@pytest.mark.parametrize(("source", "target"), pairs(TIMES))
def test_a_time_takes_coarser_ones_of_its_kind(source: pa.DataType, target: pa.DataType) -> None:
    def kind(t: pa.DataType) -> str:
        return f"timestamp {t.tz is None}" if pa.types.is_timestamp(t) else str(t)[:4]

    fits = misfit(source, target, "c") == ""
    order = ["32[day]", "s", "ms", "us"]
    unit = [
        order.index("32[day]" if pa.types.is_date32(t) else "ms" if pa.types.is_date64(t) else t.unit)
        for t in (source, target)
    ]
    assert fits == (kind(source) == kind(target) and unit[0] <= unit[1])
    if fits:
        assert cast_column(column_of(source), target).to_pylist() == column_of(source).to_pylist()
        assert is_kept(column_of(source), target)


@pytest.mark.parametrize("of", [pa.timestamp, pa.duration])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_nanoseconds_neither_take_what_ends_later_nor_fit_into_what_is_coarser(of: Any, unit: str) -> None:
    assert misfit(of("ns"), of("ns"), "c") == ""
    assert misfit(of("ns"), of(unit), "c") and misfit(of(unit), of("ns"), "c")
    assert misfit(pa.time64("us"), pa.time64("ns"), "c") == ""  # a day is a day


@pytest.mark.parametrize(("source", "target"), pairs(TEXTS))
def test_texts_and_bytes_keep_apart_whatever_their_offsets_are(source: pa.DataType, target: pa.DataType) -> None:
    same_kind = (source in TEXTS[:2]) == (target in TEXTS[:2])
    assert (misfit(source, target, "c") == "") == (source == target or (same_kind and target != pa.binary(3)))


NEVER = [
    (pa.string(), pa.int64()),
    (pa.int64(), pa.string()),
    (pa.bool_(), pa.int8()),
    (pa.int8(), pa.bool_()),
    (pa.date32(), pa.timestamp("us")),
    (pa.timestamp("us"), pa.int64()),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3)),
    (pa.list_(pa.int8()), pa.list_(pa.int8(), 3)),
    (pa.list_view(pa.int8()), pa.list_(pa.int8())),
    (pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())])), pa.map_(pa.string(), pa.int8())),
    (pa.map_(pa.string(), pa.int8()), pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())]))),
    (pa.struct([("x", pa.int8())]), pa.int8()),
]


@pytest.mark.parametrize(("source", "target"), NEVER)
def test_other_kinds_do_not_fit(source: pa.DataType, target: pa.DataType) -> None:
    assert misfit(source, target, "c") == f"the column 'c' has another type: {source} does not fit into {target}"


# ── at every depth ──────────────────────────────────────────────────────────────────────────

SOURCE = pa.struct([("b", pa.int32()), ("a", pa.dictionary(pa.int8(), pa.string())), ("n", pa.null())])
TARGET = pa.struct([("a", pa.large_string()), ("b", pa.int64()), ("n", pa.date32()), ("more", pa.list_(pa.int8()))])
ROWS = [{"b": 1, "a": "x", "n": None}, None, {"b": None, "a": None, "n": None}, {"b": 3, "a": "y", "n": None}]
WANTED = [None if row is None else {"a": row["a"], "b": row["b"], "n": None, "more": None} for row in ROWS]
KINDS = [kind for kind, _ in nested(pa.array([1])) if kind not in ("categories", "extension", "runs")]


def of_kind(values: pa.Array, kind: str) -> pa.Array:
    return dict(nested(values))[kind]


def inner(value: Any) -> Any:
    """Return a value with every row of `ROWS` in it replaced by what is wanted."""
    if value in ROWS and value is not None:
        return WANTED[ROWS.index(value)]
    if isinstance(value, dict):
        return {k: inner(v) for k, v in value.items()}
    return type(value)(inner(v) for v in value) if isinstance(value, list | tuple) else value


def structs() -> pa.Array:
    codes = pa.DictionaryArray.from_arrays(pa.array([0, None, None, 1], pa.int8()), pa.array(["x", "y"]))
    fields = [pa.array([1, None, None, 3], pa.int32()), codes, pa.nulls(4)]
    return pa.StructArray.from_arrays(fields, fields=list(SOURCE), mask=pa.array([False, True, False, False]))


@pytest.mark.parametrize("kind", [*KINDS, "categories"])
def test_fields_are_reordered_widened_and_left_out_at_every_depth(kind: str) -> None:
    try:
        column = of_kind(structs(), kind)
        target = of_kind(pa.nulls(4, TARGET), "itself" if kind == "categories" else kind).type
    except NOT_ARROW:
        pytest.skip("this Arrow makes no such column")
    schema = pa.schema([("c", target)])
    for rows in (slice(0, 4), slice(1, 4), slice(2, 3), slice(4, 4)):
        part = column[rows]
        found = accept_batch(pa.record_batch({"c": part}), schema)
        found.validate(full=True)
        assert found.schema.equals(schema)
        assert found.column(0).to_pylist() == inner(part.to_pylist())


BAD: list[tuple[pa.DataType, pa.DataType, str]] = [
    (pa.struct([("x", pa.int8()), ("z", pa.int8())]), pa.struct([("x", pa.int8())]), "its field 'z' is unknown"),
    (pa.struct([("X", pa.int8())]), pa.struct([("x", pa.int8())]), "its field 'X' is unknown"),
    (pa.struct([("x", pa.int8()), ("x", pa.int8())]), pa.struct([("x", pa.int8())]), "a field that occurs twice"),
    (pa.struct([]), pa.struct([pa.field("x", pa.int8(), False)]), "the field 'x' is missing and not nullable"),
    (pa.string(), pa.int32(), "string does not fit into int32"),
    (pa.int64(), pa.int32(), "int64 does not fit into int32"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("source", "target", "why"), BAD)
def test_anything_else_is_refused_at_every_depth_with_both_schemas(
    kind: str, source: pa.DataType, target: pa.DataType, why: str
) -> None:
    theirs, mine = (pa.schema([("c", of_kind(pa.nulls(1, t), kind).type)]) for t in (source, target))
    with pytest.raises(SchemaError, match="the column 'c") as caught:
        check_columns(theirs, mine)
    assert why in str(caught.value)
    assert f"The channel has (c: {mine.field(0).type}); the batch has (c: {theirs.field(0).type})" in str(caught.value)
    with pytest.raises(SchemaError):
        accept_batch(pa.RecordBatch.from_arrays([pa.nulls(1, theirs.field(0).type)], schema=theirs), mine)


def test_the_error_says_where_the_field_is() -> None:
    target = pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.int32())]))))])
    source = pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.string())]))))])
    assert misfit(source, target, "c").startswith("the column 'c.l.element.value.x' has another type: string")


LEAVES = st.sampled_from([*INTEGERS, *FLOATS, *TIMES, *TEXTS, pa.bool_()])
TYPES = st.recursive(
    LEAVES,
    lambda inside: st.one_of(
        inside.map(pa.list_),
        inside.map(pa.large_list),
        inside.map(lambda t: pa.list_(t, 2)),
        inside.map(lambda t: pa.map_(pa.string(), t)),
        st.dictionaries(st.sampled_from("abc"), inside, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=5,
)


def values_of(t: pa.DataType, depth: int = 0) -> list[Any]:
    """Return a few values of a type, nulls and empty ones among them."""
    if pa.types.is_struct(t):
        columns = [values_of(f.type) for f in t]
        return [{f.name: c[i % len(c)] for f, c in zip(t, columns, strict=True)} for i in range(3)] + [None]
    if pa.types.is_map(t):
        return [[(str(i), v) for i, v in enumerate(values_of(t.item_type))], [], None]
    if pa.types.is_fixed_size_list(t):
        return [values_of(t.value_type)[:1] * 2, None]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [values_of(t.value_type), [], None]
    return [True, None] if pa.types.is_boolean(t) else [*extremes(t), None]


def check(source: pa.DataType, target: pa.DataType) -> None:
    """Check that a batch comes out with values that Python sees as equal, or that it is refused."""
    column = pa.array(values_of(source), source)
    batch, schema = pa.record_batch({"c": column}), pa.schema([("c", target)])
    if misfit(source, target, "c"):
        with pytest.raises(SchemaError):
            accept_batch(batch, schema)
        return
    found = accept_batch(batch, schema)
    found.validate(full=True)
    assert found.schema.equals(schema)
    assert completed(column.to_pylist(), target) == found.column(0).to_pylist()


@given(source=TYPES, target=TYPES)
def test_what_fits_comes_out_equal_and_what_does_not_is_refused(source: pa.DataType, target: pa.DataType) -> None:
    check(source, target)


@given(fields=st.dictionaries(st.sampled_from("abcd"), TYPES, max_size=4))
def test_structs_fit_with_their_fields_in_another_order_and_new_ones(fields: dict[str, pa.DataType]) -> None:
    source = pa.struct(list(fields.items()))
    turned = pa.struct([*reversed(list(source)), ("new", pa.int8())])
    assert misfit(source, source, "c") == misfit(source, turned, "c") == ""
    check(source, turned)


def completed(values: list[Any], t: pa.DataType) -> list[Any]:
    """Return values with null for every field that they lack of a type."""
    if pa.types.is_struct(t):
        return [v if v is None else {f.name: completed([v.get(f.name)], f.type)[0] for f in t} for v in values]
    if pa.types.is_map(t):
        return [v if v is None else [(k, completed([x], t.item_type)[0]) for k, x in v] for v in values]
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return [v if v is None else completed(v, t.value_type) for v in values]
    return values
