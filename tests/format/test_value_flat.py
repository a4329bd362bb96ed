"""Numbers, texts and bytes are kept as what they are, or refused."""

from __future__ import annotations

import math
import threading
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from spillable_stream import SchemaError
from spillable_stream.format.row_values import RowReader
from spillable_stream.format.value_flat import number_reader, text_reader
from spillable_stream.format.value_leaf import ValueReader
from tests.support.python_values import read_back

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


def test_a_uuid_of_arrow_is_a_uuid() -> None:
    value = UUID(int=7)
    assert read_back(pa.scalar(value.bytes, pa.uuid()), pa.uuid()) == value


def number(t: pa.DataType) -> ValueReader:
    found = number_reader(t, "c")
    assert found is not None
    return found


def text(t: pa.DataType) -> ValueReader:
    found = text_reader(t, "c")
    assert found is not None
    return found


def size_of(reader: ValueReader, value: Any) -> int:
    return reader.size_bytes if isinstance(reader.size_bytes, int) else reader.size_bytes(value)


class Whole(int):
    """An int that an application made its own."""


class Text(str):
    """A str that an application made its own."""


@pytest.mark.parametrize("t", [pa.string(), pa.binary(), pa.date32(), pa.list_(pa.int8()), pa.struct([])], ids=str)
def test_what_is_not_a_number_has_another_reader(t: pa.DataType) -> None:
    assert number_reader(t, "c") is None


@pytest.mark.parametrize("t", [pa.int8(), pa.float64(), pa.bool_(), pa.date32(), pa.list_(pa.string())], ids=str)
def test_what_is_not_text_has_another_reader(t: pa.DataType) -> None:
    assert text_reader(t, "c") is None


@pytest.mark.parametrize(
    ("t", "low", "high"),
    [(pa.int8(), -128, 127), (pa.uint8(), 0, 255), (pa.int64(), -(2**63), 2**63 - 1), (pa.uint64(), 0, 2**64 - 1)],
    ids=str,
)
def test_an_integer_is_kept_from_the_lowest_to_the_highest(t: pa.DataType, low: int, high: int) -> None:
    for value in (low, high):
        assert number(t).read(value) == value
    for value in (low - 1, high + 1):
        with pytest.raises(SchemaError, match=f"a whole number from {low} to {high}"):
            number(t).read(value)


@pytest.mark.parametrize("value", [7.0, Decimal("7.00"), Whole(7)], ids=repr)
def test_a_whole_number_of_another_kind_is_a_plain_int(value: Any) -> None:
    found = number(pa.int64()).read(value)
    assert (type(found), found) == (int, 7)


@pytest.mark.parametrize(
    "value", [True, 7.5, Decimal("7.5"), "7", math.inf, math.nan, Decimal("1E+400"), None], ids=repr
)
def test_what_is_not_a_whole_number_is_none(value: Any) -> None:
    with pytest.raises(SchemaError):
        number(pa.int64()).read(value)


@pytest.mark.parametrize("value", [1, 0, 1.0, "True", None], ids=repr)
def test_a_truth_value_is_true_or_false_and_nothing_else(value: Any) -> None:
    assert [number(pa.bool_()).read(v) for v in (True, False)] == [True, False]
    with pytest.raises(SchemaError, match=r"takes True or False|is not nullable"):
        number(pa.bool_()).read(value)


@pytest.mark.parametrize(
    ("t", "fits", "too_large"),
    [(pa.float16(), 65519.0, 65520.0), (pa.float32(), 3.4e38, 3.5e38), (pa.float64(), 1.7e308, None)],
    ids=str,
)
def test_a_float_is_not_rounded_to_infinity(t: pa.DataType, fits: float, too_large: float | None) -> None:
    assert math.isfinite(number(t).read(fits))
    assert number(t).read(math.inf) == math.inf and math.isnan(number(t).read(math.nan))
    if too_large is not None:
        for value in (too_large, -too_large):
            with pytest.raises(SchemaError):
                number(t).read(value)


def test_a_float_takes_integers_that_it_has_exactly() -> None:
    assert number(pa.float64()).read(2**53) == 2**53
    assert type(number(pa.float32()).read(2**24)) is float
    for t, value in (
        (pa.float64(), 2**53 + 1),
        (pa.float32(), 2**24 + 1),
        (pa.float64(), True),
        (pa.float64(), 10**400),
    ):
        with pytest.raises(SchemaError):
            number(t).read(value)


def test_many_plain_values_are_told_at_once() -> None:
    numbers, floats, texts = number(pa.int8()).are_plain, number(pa.float64()).are_plain, text(pa.string()).are_plain
    assert numbers is not None and floats is not None and texts is not None
    assert numbers([1, -128, 127]) and not numbers([1, 128]) and not numbers([1, True]) and not numbers([1, 1.0])
    assert floats([0.5, 1.0]) and not floats([0.5, 1])
    assert texts(["a", "b"]) and not texts(["a", "ż"]) and not texts(["a", Text("b")])


def test_a_text_of_its_own_class_is_a_plain_str() -> None:
    found = text(pa.string()).read(Text("żółw"))
    assert (type(found), found) == (str, "żółw")


@pytest.mark.parametrize("value", ["\ud800", b"a", 7, None], ids=repr)
def test_what_is_not_valid_unicode_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError):
        text(pa.string()).read(value)


def test_bytes_are_copied_where_somebody_could_change_them() -> None:
    given = bytearray(b"abc")
    kept = [text(pa.binary()).read(v) for v in (given, memoryview(given), pa.py_buffer(given))]
    given[0] = 0
    assert kept == [b"abc"] * 3
    plain = b"abc"
    assert text(pa.binary()).read(plain) is plain


def test_bytes_of_a_fixed_size_have_that_size() -> None:
    assert text(pa.binary(3)).read(b"abc") == b"abc"
    for value in (b"ab", b"abcd", "abc"):
        with pytest.raises(SchemaError, match="takes bytes, a bytearray or a memoryview, 3 long"):
            text(pa.binary(3)).read(value)


def test_a_uuid_can_be_its_16_bytes() -> None:
    value = UUID(int=7)
    assert text(pa.uuid()).read(value.bytes) == text(pa.uuid()).read(value) == value
    with pytest.raises(SchemaError):
        text(pa.uuid()).read(str(value))


def test_what_python_has_once_holds_no_memory_and_else_at_least_what_python_says() -> None:
    for t, small, large in ((pa.int64(), 5, 10**12), (pa.string(), "a", "a" * 100), (pa.binary(), b"a", b"a" * 100)):
        reader = number(t) if t == pa.int64() else text(t)
        assert size_of(reader, small) == 0
        assert size_of(reader, large) >= large.__sizeof__()


def test_decimals_are_read_by_threads_at_once() -> None:
    reader, wrong = number(pa.decimal128(5, 2)), []

    def work(i: int) -> None:
        for _ in range(300):
            if reader.read(Decimal(i)) != i:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
