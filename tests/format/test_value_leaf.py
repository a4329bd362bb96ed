"""How one value is read: numpy's and Arrow's scalars are Python's objects, and what does not fit is said."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import SchemaError
from spillable_stream.format.value_leaf import ColumnPath, ValueReader, is_arrow_null, leaf, native
from tests.support.python_values import read_back


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


def test_an_array_of_numpy_without_a_dimension_is_its_one_value() -> None:
    numpy = pytest.importorskip("numpy")
    assert read_back(numpy.array(5), pa.int64()) == 5
    assert read_back(numpy.array(0.5), pa.float32()) == 0.5
    assert read_back(numpy.array("x"), pa.string()) == "x"
    assert read_back(numpy.array("2020-01-01", "M8[D]"), pa.date32()) == dt.date(2020, 1, 1)
    assert read_back(numpy.array(Decimal(1), object), pa.decimal128(3, 0)) == 1
    assert read_back([numpy.array(5)], pa.list_(pa.int64())) == [5]


PLACE = ColumnPath("a.key", pa.int8(), "something else")


def upper(value: Any) -> Any:
    return value.upper()


def test_a_value_is_what_was_made_of_it() -> None:
    reader: ValueReader = leaf(PLACE, upper, 7)
    assert (reader.read("x"), reader.size_bytes, reader.are_plain) == ("X", 7, None)


def test_a_value_that_does_not_fit_is_said_with_its_column_type_and_cause() -> None:
    with pytest.raises(SchemaError) as caught:
        leaf(PLACE, upper, 0).read(5)
    assert str(caught.value) == (
        "a row does not fit the channel's schema: 5 (int) is not for the column 'a.key', which has the type int8 and "
        "takes something else (AttributeError)"
    )
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_value_that_converts_to_none_does_not_fit() -> None:
    with pytest.raises(SchemaError, match=r"takes something else$") as caught:
        leaf(PLACE, lambda value: None, 0).read(5)
    assert caught.value.__cause__ is None


def test_none_does_not_fit_because_the_column_is_not_nullable() -> None:
    with pytest.raises(SchemaError, match=r"the column 'a\.key' is not nullable"):
        leaf(PLACE, upper, 0).read(None)


def test_what_is_not_a_scalar_is_left_as_it_is() -> None:
    for value in ("x", [1], object(), None):
        assert native(value) is value


def test_a_scalar_of_arrow_is_pythons_object() -> None:
    assert native(pa.scalar(5, pa.int8())) == 5
    assert native(pa.scalar(None, pa.int8())) is None
    assert native(pa.scalar("x", pa.large_string())) == "x"


def test_a_null_of_arrow_is_told_from_others_and_from_none() -> None:
    assert is_arrow_null(pa.scalar(None, pa.int8())) and is_arrow_null(pa.NULL)
    assert not any(map(is_arrow_null, (None, 5, pa.scalar(5))))
