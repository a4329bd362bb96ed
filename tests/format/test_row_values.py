"""Rows of which Arrow would leave something out, or cut it, are refused at every depth."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest

from spillable_stream import Channel, SchemaError
from spillable_stream.format.row_values import RowReader

Open = Callable[..., Channel]

AT = dt.datetime(2026, 3, 8, 2, 30, 15, 123456)
POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
DEPTHS: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]] = {
    "itself": (lambda t: t, lambda v: v),
    "list": (pa.list_, lambda v: [None, v]),
    "fixed list": (lambda t: pa.list_(t, 2), lambda v: [v, None]),
    "map": (lambda t: pa.map_(pa.string(), t), lambda v: [("k", v)]),
    "dict for a map": (lambda t: pa.map_(pa.string(), t), lambda v: {"k": v}),
    "struct in a list": (lambda t: pa.list_(pa.struct([("f", t)])), lambda v: [{"f": v}, None]),
}
CUT = [
    (1.5, pa.int64()),
    (Decimal("1.5"), pa.int64()),
    (1e300, pa.float32()),
    (AT.time().replace(tzinfo=dt.timezone(dt.timedelta(hours=2))), pa.time64("us")),
    (AT, pa.date32()),
    (AT, pa.date64()),
    (AT, pa.timestamp("s")),
    (AT, pa.timestamp("ms", "UTC")),
    (AT.replace(tzinfo=dt.UTC), pa.timestamp("us")),
    (AT.time(), pa.time32("ms")),
    (dt.timedelta(microseconds=5), pa.duration("ms")),
    ({"X": 1, "y": 2, "z": 3}, POINT),
]
WHOLE = [
    (1.0, pa.int64()),
    (Decimal("2"), pa.int64()),
    (3.4028234663852886e38, pa.float32()),
    (float("inf"), pa.float32()),
    (True, pa.bool_()),
    (0.1, pa.float64()),
    (AT.date(), pa.date32()),
    (dt.datetime(2026, 3, 8), pa.date64()),
    (AT, pa.timestamp("us")),
    (AT.replace(microsecond=123000), pa.timestamp("ms")),
    (AT.time().replace(microsecond=0), pa.time32("s")),
    (dt.timedelta(days=-1, milliseconds=5), pa.duration("ms")),
    ({"y": 2}, POINT),
]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("value", "t"), CUT, ids=lambda p: str(p)[:40])
def test_a_row_that_would_lose_a_part_of_a_value_is_refused(
    open_channel: Open, depth: str, value: Any, t: pa.DataType
) -> None:
    type_of, value_of = DEPTHS[depth]
    channel = open_channel(schema=pa.schema([("c", type_of(t))]))
    with channel.put_transaction() as tx:
        with pytest.raises(SchemaError, match=r"a row does not fit the channel's schema: .*the column 'c"):
            tx.put_many([{"c": None}, {"c": value_of(value)}])
        assert tx.count == 0


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("value", "t"), WHOLE, ids=lambda p: str(p)[:40])
def test_a_row_that_loses_nothing_is_put(open_channel: Open, depth: str, value: Any, t: pa.DataType) -> None:
    type_of, value_of = DEPTHS[depth]
    channel = open_channel(schema=pa.schema([("c", type_of(t))]))
    with channel.put_transaction() as tx:
        tx.put({"c": value_of(value)})
    assert channel.stats().channel_size == 1


SCHEMA = pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("s", pa.string())])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([1], "takes mappings of column to value, not list"),
        ({"n": 1, "x": 2}, "no column 'x'; it has n, s"),
        ({"n": "one"}, "does not fit the channel's schema"),
        ({"n": 2**40}, "does not fit the channel's schema"),
        ({"s": "a"}, "'n' is not nullable"),
        ({"n": None}, "'n' is not nullable"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        RowReader(SCHEMA).read(row)


@dataclass
class Row:
    n: int
    s: str


class Pair(NamedTuple):
    n: int
    s: str


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        (Row(1, "a"), r"not Row: dataclasses.asdict\(row\) makes one"),
        (Pair(1, "a"), r"not Pair: row._asdict\(\) makes one"),
        (pd.Series({"n": 1, "s": "a"}), r"not Series: row.to_dict\(\) makes one"),
        (pd.Series({"other": 1}), "not Series$"),
        (pd.DataFrame({"n": [1]}), "not DataFrame; put_batch takes it"),
    ],
)
def test_an_object_that_has_the_columns_is_refused_with_what_makes_a_row_of_it(row: object, hint: str) -> None:
    with pytest.raises(SchemaError, match=hint):
        RowReader(SCHEMA).read(row)
