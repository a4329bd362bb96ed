"""Numbers that a column of floats would change."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from spillable_stream.cli.float_columns import change, may_change, narrowest_float, whole_number


def test_a_whole_number_of_any_length_is_kept() -> None:
    assert whole_number("12") == 12 and whole_number("-12") == -12
    assert whole_number("9" * 5000) == Decimal("9" * 5000)


@pytest.mark.parametrize(("of", "least"), [(pa.float16(), 2049), (pa.float32(), 2**24 + 1), (pa.float64(), 2**53 + 1)])
def test_the_least_number_that_is_rounded_is_found_by_its_digits(of: pa.DataType, least: int) -> None:
    assert may_change(f'{{"n": {least}}}'.encode(), of.bit_width)
    assert may_change(f"{least}".encode(), of.bit_width) and may_change(f"[1,-{least}]".encode(), of.bit_width)
    for text in (f'"{least}"', f"id{least}", f"0.{least}", f"{str(least)[1:]}.{str(least)[1:]}"):
        assert not may_change(text.encode(), of.bit_width)
    assert may_change(f'"{least}"'.encode(), of.bit_width, quoted=True)
    assert change(least, of).startswith(f"{least} is a whole number that the type {of} would round")
    assert change(least - 1, of) == change(1 - least, of) == change(2 * (least - 1), of) == ""


@pytest.mark.parametrize("number", [10**400, Decimal("9" * 5000)], ids=["int", "Decimal"])
def test_a_number_larger_than_any_float_is_refused_in_few_words(number: int) -> None:
    assert 0 < len(change(number, pa.float64())) < 500


def test_only_floats_round() -> None:
    for of in (pa.int64(), pa.decimal128(38, 0), pa.string(), pa.list_(pa.float64())):
        assert change(2**70 + 1, of) == ""


def test_the_narrowest_floats_are_found_at_any_depth() -> None:
    inner = pa.struct([("v", pa.list_(pa.map_(pa.string(), pa.float32())))])
    assert narrowest_float(pa.schema([("x", pa.float64()), ("a", inner)])) == 32
    assert narrowest_float(pa.schema([("x", pa.float64()), ("n", pa.int64())])) == 64
    assert narrowest_float(pa.schema([("n", pa.int64())])) is None


@pytest.mark.parametrize(
    ("of", "most", "more"), [(pa.float16(), "65519", "65520"), (pa.float32(), "3.4028235e38", "3.4028236e38")]
)
def test_a_number_that_would_become_infinite_is_refused(of: pa.DataType, most: str, more: str) -> None:
    assert change(float(most), of) == change(-float(most), of) == ""
    assert change(float(more), of) == change(-float(more), of) == f"it is larger than any number of the type {of}"
    assert may_change(more.encode(), of.bit_width)
    assert change(1e308, pa.float64()) == "" and change(float("1e400"), pa.float64()).startswith("it is larger")
