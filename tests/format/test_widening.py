"""Which columns fit into which, at every depth, and what becomes of their values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import accept_batch, check_columns
from spillable_stream.format.conversion import cast_column
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.format.widening import misfit
from tests.support.arrow_values import FLOATS, INTEGERS, KINDS, TEXTS, TIMES, extremes, of_kind

DECIMALS = [
    pa.decimal128(p, s) for p, s in [(3, 0), (5, 0), (5, 2), (9, 4), (10, 0), (19, 0), (20, 0), (21, 2), (38, 9)]
]
NUMBERS = [*INTEGERS, *FLOATS, *DECIMALS]


def column_of(t: pa.DataType) -> pa.Array:
    return pa.array([*extremes(t), None], t)


def is_kept(column: pa.Array, target: pa.DataType) -> bool:
    """Tell whether Arrow's own casts there and back change nothing, and Python sees equal values on the way."""
    try:
        found = column.cast(target)
        return found.to_pylist() == column.to_pylist() and found.cast(column.type).equals(column)
    except NOT_ARROW:
        return False


def pairs(types: list[pa.DataType]) -> list[Any]:
    return [pytest.param(a, b, id=f"{a} into {b}") for a in types for b in types]


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
    assert f"The channel has (c: {mine.field(0).type}); what is given has (c: {theirs.field(0).type})" in str(
        caught.value
    )
    with pytest.raises(SchemaError):
        accept_batch(pa.RecordBatch.from_arrays([pa.nulls(1, theirs.field(0).type)], schema=theirs), mine)


def test_the_error_says_where_the_field_is() -> None:
    target = pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.int32())]))))])
    source = pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.string())]))))])
    assert misfit(source, target, "c").startswith("the column 'c.l.element.value.x' has another type: string")
