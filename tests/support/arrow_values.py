"""Columns of every Arrow type, by themselves and inside of every nested one."""

from __future__ import annotations

import datetime
import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = [
    "ACCEPTED",
    "FLOATS",
    "INTEGERS",
    "KINDS",
    "LEAVES",
    "REFUSED",
    "TEXTS",
    "TIMES",
    "extremes",
    "nested",
    "not_utf8",
    "of_kind",
]

_NUMBERS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32(),
    pa.float64(), pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.timestamp("s"), pa.timestamp("ms"),
    pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "+01:00"),
    pa.duration("s"), pa.duration("ms"), pa.duration("us"),
]  # fmt: skip
_LONG = "a text that is longer than a view keeps inside"
_DAY = datetime.date(2026, 11, 21)


def _extension(t: pa.DataType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(t, storage)


def _leaves() -> Iterator[tuple[str, pa.Array]]:
    for t in _NUMBERS:
        yield str(t), pa.array([1, None, 2], t)
    for t in (pa.time64("ns"), pa.timestamp("ns"), pa.duration("ns")):  # as Python's objects know them
        yield str(t), pa.array([1000, None, 2000], t)
    yield "bool", pa.array([True, None, False])
    yield "halffloat", pa.array([1, None, 2], pa.float32()).cast(pa.float16())
    yield "date64", pa.array([_DAY, None, _DAY], pa.date64())
    yield "interval", pa.array([(1, 2, 3), None, (4, 5, 6)], pa.month_day_nano_interval())
    for t in (pa.string(), pa.large_string(), pa.string_view()):
        yield str(t), pa.array(["a", None, _LONG], t)
    for t in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield str(t), pa.array([b"a", None, _LONG.encode()], t)
    yield "fixed", pa.array([b"ab", None, b"cd"], pa.binary(2))
    yield "fixed of nothing", pa.array([b"", None, b""], pa.binary(0))
    widths = [("decimal32", 5), ("decimal64", 12), ("decimal128", 38), ("decimal256", 76)]
    for name, digits in widths:
        if hasattr(pa, name):  # pyarrow 19 has the small ones
            yield name, pa.array([Decimal("1.10"), None, Decimal("-2.34")], getattr(pa, name)(digits, 2))
    for t in (
        pa.list_(pa.int64()),
        pa.large_list(pa.int64()),
        pa.list_view(pa.int64()),
        pa.large_list_view(pa.int64()),
    ):
        yield str(t), pa.array([[1, 2], None, []], t)
    yield "fixed list", pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    yield "struct", pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}])
    yield "struct of nothing", pa.array([{}, None, {}], pa.struct([]))
    yield "map", pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64()))
    yield "runs", pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))
    yield (
        "tensor",
        _extension(pa.fixed_shape_tensor(pa.int32(), [1]), pa.array([[1], [2], [3]], pa.list_(pa.int32(), 1))),
    )
    storages = {"uuid": pa.array([b"u" * 16, None, b"v" * 16], pa.binary(16)), "json_": pa.array(["{}", None, "1"])}
    for name, storage in {**storages, "bool8": pa.array([1, None, 0], pa.int8())}.items():
        if hasattr(pa, name):
            yield name, _extension(getattr(pa, name)(), storage)
    if hasattr(pa, "opaque"):
        yield "opaque", _extension(pa.opaque(pa.int64(), "t", "v"), pa.array([1, None, 2]))
    yield "categories", pa.array(["b", None, "a"]).dictionary_encode()
    yield (
        "categories in order",
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint8()), pa.array([1.5, None]), ordered=True),
    )
    yield "categories of views", pa.DictionaryArray.from_arrays([1, None, 0], pa.array(["a", _LONG], pa.string_view()))
    yield (
        "categories of categories",
        pa.DictionaryArray.from_arrays([1, 0, 2], pa.array(["b", None, "a"]).dictionary_encode()),
    )
    yield "null", pa.nulls(3)
    texts, numbers = pa.array(["a", "b", None]), pa.array([1, None, 3])
    kinds = pa.array([0, 1, 0], pa.int8())
    yield "dense union", pa.UnionArray.from_dense(kinds, pa.array([0, 0, 2], pa.int32()), [texts, numbers])
    yield "sparse union", pa.UnionArray.from_sparse(kinds, [texts, numbers])


LEAVES = dict(_leaves())
REFUSED = {"null", "dense union", "sparse union"}
ACCEPTED = [name for name in LEAVES if name not in REFUSED]


def nested(column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield a column, and columns that have it inside, under the name of what has it."""
    rows, offsets = len(column), pa.array(range(len(column) + 1), pa.int32())
    yield "itself", column
    yield "struct", pa.StructArray.from_arrays([column], ["x"])
    yield "list", pa.ListArray.from_arrays(offsets, column)
    yield "large list", pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), column)
    yield "fixed list", pa.FixedSizeListArray.from_arrays(column, 1)
    yield "map", pa.MapArray.from_arrays(offsets, pa.array([str(i) for i in range(rows)]), column)
    yield (
        "list in a struct in a list",
        pa.ListArray.from_arrays(
            offsets, pa.StructArray.from_arrays([pa.ListArray.from_arrays(offsets, column)], ["x"])
        ),
    )
    yield (
        "list view",
        pa.ListViewArray.from_arrays(pa.array(range(rows), pa.int32()), pa.array([1] * rows, pa.int32()), column),
    )
    if not isinstance(column.type, pa.BaseExtensionType):
        yield "categories", pa.DictionaryArray.from_arrays(pa.array(range(rows), pa.int8()), column)
    if hasattr(pa, "opaque"):
        yield "extension", _extension(pa.opaque(column.type, "t", "v"), column)
    runs = pa.array(range(1, rows + 1), pa.int32())
    yield "runs", pa.RunEndEncodedArray.from_arrays(runs, column)


def not_utf8(type_: pa.DataType | None = None) -> pa.Array:
    """Return three texts, of which the second is none."""
    binary = {pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}.get(type_, pa.binary())
    return pa.array([b"a", b"\xff", b"c"], binary).view(type_ or pa.string())


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float32(), pa.float64()]
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


KINDS = [kind for kind, _ in nested(pa.array([1])) if kind not in ("categories", "extension", "runs")]


def of_kind(values: pa.Array, kind: str) -> pa.Array:
    """Return values inside of something, as `nested` calls it."""
    return dict(nested(values))[kind]
