"""Times in JSON, with a zone and without."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spillable_stream.cli.json_times import misplaced, misplaced_times, with_zones

AWARE, NAIVE = pa.timestamp("s", "UTC"), pa.timestamp("us")
ZONES = [
    "2024-01-01T00:00:00Z",
    "2024-01-01 00:00+02",
    "2024-01-01T00:00:00.5-0230",
    "2024-01-01T00+02:00",
    "2024-01-01 00:00:00.25-07",
    "2024-01-01T00:00-07:00",
    "2024-01-01T00+0100",
]
PLAIN = ["2024-01-01", "2024-01-01T00", "2024-01-01 00:00", "2024-01-01T00:00:00.123456789"]
OTHERS = ["", "x", "10:00:00", "2024-01-01Z", "at 10-02", "+4", "2024"]


def found(of: pa.DataType, text: str) -> bool:
    schema = pa.schema([("a", pa.list_(pa.struct([("t", of)])))])
    return misplaced_times(schema)(b'{"a": [{"t": "%b"}]}' % text.encode())


@pytest.mark.parametrize("text", ZONES)
def test_a_zone_is_for_columns_that_have_one(text: str) -> None:
    assert misplaced(text, AWARE) == "" and not found(AWARE, text)
    assert misplaced(text, NAIVE).startswith(f"{text} has a zone, which the type timestamp[us] would forget")
    assert found(NAIVE, text)


@pytest.mark.parametrize("text", PLAIN)
def test_no_zone_is_for_columns_that_have_none(text: str) -> None:
    assert misplaced(text, NAIVE) == "" and not found(NAIVE, text)
    assert misplaced(text, AWARE).endswith("has no zone, and the type timestamp[s, tz=UTC] needs one: add it")
    assert found(AWARE, text)


def test_what_is_not_a_time_is_left_to_arrow() -> None:
    for text in OTHERS:
        assert misplaced(text, AWARE) == "" and not found(AWARE, text)
    assert misplaced(ZONES[0], pa.string()) == ""
    plain = pa.schema([("s", pa.string())])
    assert not misplaced_times(plain)(ZONES[0].encode() + b'"')


def test_letters_that_are_escaped_may_be_those_of_a_zone() -> None:
    for text in (r"2024-01-01T00:00:00\u005A", r"2024-01-01\u005400:00Z", r"2024-01-01 00:00\u002b01:00"):
        assert found(NAIVE, text)
    assert found(AWARE, r"2024-01-01T00:0\u0030") and not found(NAIVE, r"caf\u00e9")


def test_a_column_whose_times_all_have_zones_has_one() -> None:
    inferred = pa.timestamp("s")
    assert with_zones(inferred, [*ZONES, None]) == pa.timestamp("s", "UTC")
    assert with_zones(inferred, [*PLAIN, None]) == inferred
    assert with_zones(inferred, [*ZONES, *PLAIN]) == pa.string()
    of = pa.list_(pa.struct([("t", inferred), ("n", pa.int64())]))
    wanted = pa.list_(pa.struct([("t", pa.timestamp("s", "UTC")), ("n", pa.int64())]))
    assert with_zones(of, [None, [], [{"t": ZONES[0]}, None, {"n": 1}]]) == wanted
