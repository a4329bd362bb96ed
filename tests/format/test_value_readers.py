"""Every Python value either does not fit, and that is said at once, or reads back as what it was."""

from __future__ import annotations

import copy
import datetime as dt
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import SchemaError
from spillable_stream.format.row_values import RowReader
from tests.support.examples import examples
from tests.support.python_values import TYPES, change, is_read_as, values_of


@settings(max_examples=examples(1500))
@given(TYPES, st.data())
def test_a_value_is_refused_or_reads_back_as_what_it_was_though_it_is_changed_later(
    t: pa.DataType, data: st.DataObject
) -> None:
    reader = RowReader(pa.schema([("c", t)]))
    kept, sent = [], []
    for value in data.draw(st.lists(values_of(t), min_size=1, max_size=4)):
        before, given = copy.deepcopy(value), copy.deepcopy(value)
        try:
            row = reader.read({"c": given})
        except SchemaError as e:
            assert "'c" in str(e)
            continue
        change(given)
        kept.append(row)
        sent.append(before)
        assert reader.size_bytes(row) > 0
    batch = reader.batch(kept)
    batch.validate(full=True)
    found = [row["c"] for row in batch.to_pylist()]
    for one, other in zip(sent, found, strict=True):
        assert is_read_as(one, other, t), (one, other, t)


@settings(max_examples=examples(500))
@given(TYPES, st.data())
def test_values_that_fit_are_read(t: pa.DataType, data: st.DataObject) -> None:
    value = data.draw(values_of(t, odd=False))
    reader = RowReader(pa.schema([("c", t)]))
    try:
        kept = reader.read({"c": value})
    except SchemaError as e:  # times finer or further than the column, and nulls
        assert any(word in str(e) for word in ("datetime", "timedelta", "a time without", "a date,", "not nullable"))
    else:
        assert reader.batch([kept]).num_rows == 1
        assert reader.read(kept) == kept or _has_nan(kept)


def _has_nan(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nan, [*value, *value.values()]))
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    return isinstance(value, float) and math.isnan(value)


def read_back(value: Any, t: pa.DataType, nullable: bool = True) -> Any:
    """Return what a value is given out as."""
    reader = RowReader(pa.schema([pa.field("c", t, nullable)]))
    batch = reader.batch([reader.read({"c": value}), reader.read({"c": value})])
    batch.validate(full=True)
    return batch.to_pylist()[1]["c"]


SMALL = pa.decimal128(3, 5)


@pytest.mark.parametrize(
    ("t", "value"),
    [
        (SMALL, Decimal("0.00123")),
        (pa.decimal256(1, 76), Decimal("1E-76")),
        (pa.list_(SMALL), [Decimal("-0.00999"), None]),
        (pa.struct([("s", pa.map_(SMALL, SMALL))]), {"s": [(Decimal("0.00001"), Decimal("0.00002"))]}),
    ],
    ids=str,
)
def test_a_decimal_of_more_digits_behind_the_point_than_at_all_is_given_out(t: pa.DataType, value: Any) -> None:
    assert read_back(value, t) == value


@pytest.mark.parametrize(
    ("t", "value"),
    [
        (SMALL, Decimal("0.01")),
        (pa.list_view(SMALL), [Decimal("0.00123")]),  # of which Arrow makes no column
        (pa.decimal128(3, 39), Decimal("1E-39")),  # which Arrow stores and gives out nowhere
        (pa.decimal256(76, -3), Decimal("9" * 74 + "E+3")),  # which has 77 digits when it is written out
        (pa.decimal128(3, -38), Decimal("1E+38")),
    ],
    ids=str,
)
def test_a_decimal_that_arrow_makes_no_column_of_is_refused_when_it_is_read(t: pa.DataType, value: Any) -> None:
    reader = RowReader(pa.schema([("c", t)]))
    with pytest.raises(SchemaError, match="'c"):
        reader.read({"c": value})
    assert reader.batch([reader.read({"c": None})]).num_rows == 1


def test_a_decimal_with_zeros_before_the_point_has_as_many_digits_as_arrow_makes() -> None:
    value = Decimal("9" * 73 + "E+3")
    assert read_back(value, pa.decimal256(76, -3)) == value


@pytest.mark.parametrize(
    ("number", "unit"), [(600_000, "Y"), (2**62, "Y"), (2**58, "s"), (2**40, "D"), (1, "ns"), (20_000 - 1970, "Y")]
)
@pytest.mark.parametrize("t", [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s"), pa.date32()], ids=str)
def test_a_datetime64_that_no_datetime_equals_is_refused(t: pa.DataType, number: int, unit: str) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(SchemaError, match="'c'"):
        read_back(numpy.datetime64(number, unit), t)


@pytest.mark.parametrize(
    ("number", "unit"), [(2**58, "s"), (2**61, "s"), (1, "M"), (1, "Y"), (5, "generic"), (1, "ns")]
)
@pytest.mark.parametrize("t", [pa.duration("us"), pa.duration("ns"), pa.duration("s")], ids=str)
def test_a_timedelta64_that_no_timedelta_equals_is_refused(t: pa.DataType, number: int, unit: str) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(SchemaError, match="'c'"):
        read_back(numpy.timedelta64(number, unit), t)


def test_times_of_numpy_that_fit_are_given_out_as_what_they_equal() -> None:
    numpy = pytest.importorskip("numpy")
    assert read_back(numpy.datetime64("2020-02-03"), pa.timestamp("us")) == dt.datetime(2020, 2, 3)
    assert read_back(numpy.datetime64(50, "Y"), pa.timestamp("s")) == dt.datetime(2020, 1, 1)
    assert read_back(numpy.timedelta64(-7_000, "ns"), pa.duration("us")) == dt.timedelta(microseconds=-7)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_time_that_is_parts_of_a_second_from_utc_is_given_out_as_the_same_time(unit: str) -> None:
    pytest.importorskip("pandas")
    odd = dt.timezone(dt.timedelta(hours=1, microseconds=5))
    for zone in (odd, dt.timezone(dt.timedelta(hours=1)), odd, dt.UTC):
        value = dt.datetime(2020, 1, 1, tzinfo=zone)
        assert read_back(value, pa.timestamp(unit, "UTC")) == value
        assert read_back([value], pa.list_(pa.timestamp(unit, "UTC"))) == [value]
    with pytest.raises(SchemaError, match="'c'"):
        read_back(dt.datetime(2020, 1, 1, tzinfo=odd), pa.timestamp("ms", "UTC"))


def test_a_series_of_pandas_is_a_list() -> None:
    pandas = pytest.importorskip("pandas")
    assert read_back(pandas.Series([1, 2]), pa.list_(pa.int64())) == [1, 2]
    assert read_back(pandas.Series([1.5, 2.5])[1:], pa.list_(pa.float32())) == [2.5]
    assert read_back(pandas.Series(["a", None]), pa.list_(pa.string())) == ["a", None]
    assert read_back(pandas.Index([1, 2]), pa.list_(pa.int64())) == [1, 2]
    days = pandas.Series(pandas.to_datetime(["2020-01-01"]))
    assert read_back(days, pa.list_(pa.timestamp("us"))) == [dt.datetime(2020, 1, 1)]


def test_the_values_of_a_mapping_and_chunks_of_arrow_are_a_list() -> None:
    assert read_back({"a": 1, "b": 2}.values(), pa.list_(pa.int64())) == [1, 2]
    assert read_back(pa.chunked_array([[1], [None]]), pa.list_(pa.int64())) == [1, None]


def test_an_array_of_numpy_without_a_dimension_is_its_one_value() -> None:
    numpy = pytest.importorskip("numpy")
    assert read_back(numpy.array(5), pa.int64()) == 5
    assert read_back(numpy.array(0.5), pa.float32()) == 0.5
    assert read_back(numpy.array("x"), pa.string()) == "x"
    assert read_back(numpy.array("2020-01-01", "M8[D]"), pa.date32()) == dt.date(2020, 1, 1)
    assert read_back(numpy.array(Decimal(1), object), pa.decimal128(3, 0)) == 1
    assert read_back([numpy.array(5)], pa.list_(pa.int64())) == [5]


@pytest.mark.parametrize("null", [pa.scalar(None, pa.int64()), pa.NULL], ids=["of a type", "of none"])
def test_a_null_scalar_of_arrow_is_nothing_where_there_may_be_nothing(null: pa.Scalar) -> None:
    numbers, row = pa.list_(pa.int64()), pa.struct([("f", pa.int64())])
    assert read_back(null, pa.int64()) is None
    assert read_back(null, pa.binary()) is None
    assert read_back(null, numbers) is None
    assert read_back([1, null], numbers) == [1, None]
    assert read_back((null,), row) == {"f": None}
    assert read_back({"a": null, "b": 1}, pa.map_(pa.string(), pa.int64())) == [("a", None), ("b", 1)]
    required = pa.list_(pa.field("item", pa.int64(), nullable=False))
    key = (pa.map_(pa.string(), pa.int64()), [(null, 1)])
    for t, value, nullable in ((pa.int64(), null, False), (required, [null], True), (*key, True)):
        with pytest.raises(SchemaError, match="'c"):
            read_back(value, t, nullable)


def test_a_uuid_of_arrow_is_a_uuid() -> None:
    value = UUID(int=7)
    assert read_back(pa.scalar(value.bytes, pa.uuid()), pa.uuid()) == value


def test_a_map_can_be_a_list_of_dictionaries_of_a_key_and_a_value() -> None:
    t = pa.map_(pa.string(), pa.int64())
    assert read_back([{"key": "a", "value": 1}, {"value": None, "key": "b"}], t) == [("a", 1), ("b", None)]
    for wrong in ([{"key": "a"}], [{"key": "a", "value": 1, "more": 2}], [{"k": "a", "v": 1}]):
        with pytest.raises(SchemaError, match=r"'c', .* takes a mapping, or a list of pairs"):
            read_back(wrong, t)
