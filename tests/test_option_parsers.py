from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spillable_stream.option_parsers import (
    REFUSED,
    boolean,
    columns,
    delay,
    directories,
    directory_of_this_host,
    duration,
    duration_above_zero,
    duration_of_a_second,
    integer,
    milliseconds,
    mode,
    not_empty,
    offset,
    one_of,
    or_zero,
    power_of_two,
    size,
    timestamp,
)

Parse = Callable[[Any], object]


@pytest.mark.parametrize(
    ("parse", "value", "expected"),
    [
        (integer(0), 5.0, 5),
        (duration, "0.5", 0.5),
        (duration, 300, 300.0),
        (delay, "366d", 31_622_400.0),
        (duration, timedelta(days=1), 86_400.0),
        (milliseconds(1), "2s", 2000),
        (milliseconds(1), "2", 2),
        (milliseconds(-1), -1, -1),
        (size(0), "64MiB", 64 << 20),
        (size(0), "67_108_864", 64 << 20),
        (boolean, "TRUE", True),
        (boolean, False, False),
        (directories, "/a, /b,", ["/a", "/b"]),
        (directories, ["/a"], ["/a"]),
        (offset("earliest", "latest"), '{"writeOrderId": 0}', '{"writeOrderId": 0}'),
        (columns, ["customer"], ["customer"]),
        (or_zero(1000, milliseconds(0)), 0, 0),
        (or_zero(1 << 20, size(0)), "1 GiB", 1 << 30),
        (mode, 0o750, "0750"),
        (mode, "0o770", "0770"),
        (timestamp, 5, 5000),
        (timestamp, "253402300799999", 253402300799999000),
        (timestamp, "1970-01-01T01:00:00+01:00", 0),
        (duration, "250 ms", 0.25),
        (duration, "1.5h", 5400.0),
        (duration_above_zero, 1e-6, 1e-6),
    ],
)
def test_a_value_of_any_form_is_parsed(parse: Parse, value: Any, expected: object) -> None:
    assert parse(value) == expected


@pytest.mark.parametrize(
    ("parse", "value"),
    [
        (integer(0), 1.5),
        (integer(0), True),
        (integer(0), "many"),
        (duration, "nan"),
        (duration, True),
        (duration, "36526d"),
        (delay, "36000d"),
        (duration, -1),
        (milliseconds(1), "0.4ms"),
        (milliseconds(1), 1.5),
        (size(0), "64MB"),
        (size(0, 100), "1KiB"),
        (boolean, "yes"),
        (directories, "/a,/a"),
        (directories, " , "),
        (offset("earliest", "latest"), "9" * 5000),
        (offset("earliest", "latest"), '{"writeOrderId": true}'),
        (offset("earliest", "latest"), '{"writeOrderId": -5}'),
        (offset("earliest", "latest"), '{"writeOrderId": 1.5}'),
        (offset("earliest", "latest"), '{"writeOrderId": 9223372036854775808}'),
        (offset("earliest", "latest"), "first"),
        (offset("earliest", "latest"), "²"),
        (columns, "customer,,region"),
        (columns, "customer,customer"),
        (or_zero(1000, milliseconds(0)), "0.999s"),
        (power_of_two(1, 64), 48),
        (mode, "0777"),
        (not_empty, ""),
        (directory_of_this_host, "s3://bucket/orders"),
        (timestamp, "2026-11-21T08:00:00"),
        (timestamp, 1_795_000_000_000_000),  # microseconds: the year 58,000
        (timestamp, "253402300800000"),  # the year 10,000
        (duration, "1 week"),
        (duration_of_a_second, "999ms"),
        (duration_above_zero, True),
    ],
)
def test_what_is_none_is_refused(parse: Parse, value: Any) -> None:
    with pytest.raises(REFUSED):
        parse(value)


def test_a_parser_of_zero_asks_for_what_its_own_parser_asks_for() -> None:
    assert or_zero(1000, milliseconds(0)).__annotations__["value"] == "Milliseconds"


def test_the_annotations_of_a_parser_of_words_name_them() -> None:
    assert one_of("keep", "drop").__annotations__["return"] == 'Literal["keep", "drop"]'
