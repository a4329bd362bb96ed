"""Types that a channel can have, Python values for them and for none, and what each reads back as."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st

from spillable_stream.format.row_values import RowReader
from tests.support.arrow_values import ACCEPTED, LEAVES

__all__ = ["HOSTILE", "TYPES", "change", "is_read_as", "read_back", "values_of"]

EPOCH = dt.datetime(1970, 1, 1)
ZONES = [None, dt.UTC, dt.timezone(dt.timedelta(hours=14)), dt.timezone(-dt.timedelta(hours=12, minutes=30))]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def _is_flat(t: pa.DataType) -> bool:
    return t.num_fields == 0 and not isinstance(t, pa.BaseExtensionType) and not pa.types.is_run_end_encoded(t)


_FLAT = [LEAVES[name].type for name in ACCEPTED if _is_flat(LEAVES[name].type) and "categories" not in name]
_WHOLE = [LEAVES[name].type for name in ("uuid", "bool8", "json_", "tensor", "opaque", "runs") if name in LEAVES]


def _names(types: list[pa.DataType]) -> list[tuple[str, pa.DataType]]:
    return [(f"f{i}", t) for i, t in enumerate(types)]


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    one_of = [
        st.builds(pa.list_, inner),
        st.builds(pa.large_list, inner),
        st.builds(pa.list_, inner, st.integers(0, 2)),
        st.builds(lambda t: pa.list_(pa.field("item", t, nullable=False)), inner),
        st.builds(lambda types: pa.struct(_names(types)), st.lists(inner, max_size=3)),
        st.builds(lambda t: pa.struct([pa.field("f0", t, nullable=False), pa.field("f1", t)]), inner),
        st.builds(pa.map_, inner, inner),
        st.builds(pa.map_, st.just(pa.string()), inner),
        st.builds(pa.list_view, st.sampled_from([t for t in _FLAT if not pa.types.is_float16(t)])),
    ]
    return st.one_of(one_of)


TYPES = st.one_of(st.recursive(st.sampled_from(_FLAT), _nested, max_leaves=4), st.sampled_from(_WHOLE))
"""Types of columns."""


class Text(str):
    """A text that lies about itself."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = isascii = encode = __str__  # type: ignore[assignment]


class Broken(Mapping[Any, Any]):
    """A mapping of which nothing can be had."""

    def __getitem__(self, key: Any) -> Any:
        raise ZeroDivisionError

    def __iter__(self) -> Any:
        raise ZeroDivisionError

    __len__ = __repr__ = items = keys = __iter__


class Raising:
    """An object of which nothing can be had."""

    def __getattribute__(self, name: str) -> Any:
        raise ZeroDivisionError

    __repr__ = __str__ = __iter__ = __len__ = __int__ = __index__ = __float__ = __bool__ = __hash__ = (
        lambda self: 1 // 0  # type: ignore[assignment]
    )


class Zone(dt.tzinfo):
    """A time zone that fails."""

    def utcoffset(self, when: Any) -> Any:
        raise ZeroDivisionError


class LongNumber(int):
    def __index__(self) -> int:
        return 2**100

    __int__ = __index__


def _odd() -> list[Any]:
    found: list[Any] = [
        math.nan, math.inf, -math.inf, 1e300, 2**63, -(2**63), 2**64, 10**30, 2**200, 1_700_000_000_000_000_000, True,
        "x", "\ud800", b"x", b"\xff", bytearray(b"xy"), Decimal("NaN"), Decimal("Infinity"), Decimal("1E+99"),
        Decimal("0.0000001"), Decimal("1E+999999"), [None], [[None]], [(None, 1)], [("a",)], [("a", 1, 2)], [1, [2]],
        {"a": None}, {None: 1}, {1: 1}, {"f0": None, "zz": 1}, (1, 2, 3, 4), (), {}, [], {1, 2}, range(2),
        dt.datetime.max, dt.datetime.min, dt.datetime.max.replace(tzinfo=ZONES[3]),
        dt.datetime.min.replace(tzinfo=ZONES[2]), dt.timedelta.max, dt.timedelta.min, dt.date.max,
        dt.time(1, tzinfo=dt.UTC), UUID(int=1), 1 + 2j, SimpleNamespace(),
    ]  # fmt: skip
    try:
        import numpy
        import pandas
    except ImportError:
        return found
    found += [
        pandas.NaT, pandas.NA, pandas.Timestamp("2020-01-01T00:00:00.000000001"), pandas.Timestamp("2020-01-01"),
        pandas.Timedelta(1, "ns"), pandas.Timedelta(1, "h"), pandas.Series([1]), numpy.int8(1),
        numpy.uint64(2**64 - 1), numpy.float32(0.5), numpy.bool_(True), numpy.str_("x"), numpy.bytes_(b"x"),
        numpy.datetime64("NaT"), numpy.datetime64("2020-01-01"), numpy.datetime64(1, "ns"), numpy.timedelta64(1, "s"),
        numpy.array([1, 2]), numpy.array([0.5, math.nan]), numpy.array([[1, 2]]),
        numpy.array(["2020-01-01"], "datetime64[ns]"), numpy.array(1), numpy.longdouble(1),
    ]  # fmt: skip
    return found


HOSTILE: dict[str, Any] = {
    "a mapping that raises": Broken,
    "an object that raises": Raising,
    "a text that lies": lambda: Text("abc"),
    "a number that lies": lambda: LongNumber(3),
    "a zone that raises": lambda: dt.datetime(2020, 1, 1, tzinfo=Zone()),
    "a generator": lambda: (x for x in [1]),
    "an iterator of pairs": lambda: iter([("a", 1)]),
    "a type": lambda: int,
    "a list with itself inside": lambda: _endless(),
    "a view that is released": lambda: _released(),
}
"""What makes values that raise, lie or have no end."""


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _released() -> memoryview:
    view = memoryview(bytearray(b"x"))
    view.release()
    return view


_ODDITIES = _odd()
_ODD = st.integers(0, len(_ODDITIES) - 1).map(lambda i: _ODDITIES[i])


def values_of(t: pa.DataType, odd: bool = True) -> st.SearchStrategy[Any]:
    """Return values for a type, most of which fit, None, and if `odd` such as mostly do not."""
    fitting = _fitting(t, odd)
    return st.one_of(fitting, fitting, fitting, st.none(), _ODD) if odd else st.one_of(fitting, st.none())


def _fitting(t: pa.DataType, odd: bool) -> st.SearchStrategy[Any]:
    if isinstance(t, pa.BaseExtensionType) and t.extension_name == "arrow.uuid":
        return st.uuids()
    if isinstance(t, pa.BaseExtensionType) and t.extension_name == "arrow.bool8":
        return st.booleans()
    if isinstance(t, pa.BaseExtensionType):
        return _fitting(t.storage_type, odd)
    if pa.types.is_run_end_encoded(t):
        return _fitting(t.value_type, odd)
    if pa.types.is_struct(t):
        fields = {f.name: values_of(f.type, odd) for f in t}
        return st.one_of(
            st.fixed_dictionaries({}, optional=fields), st.fixed_dictionaries(fields), st.tuples(*fields.values())
        )
    if pa.types.is_map(t):
        pairs = st.lists(st.tuples(values_of(t.key_type, odd), values_of(t.item_type, odd)), max_size=3)
        if not pa.types.is_string(t.key_type):
            return pairs
        return st.one_of(pairs, st.dictionaries(TEXT, values_of(t.item_type, odd), max_size=3))
    if t.num_fields == 1:
        length = t.list_size if pa.types.is_fixed_size_list(t) else None
        lists = st.lists(values_of(t.value_type, odd), min_size=length or 0, max_size=3 if length is None else length)
        return st.one_of(lists, lists.map(tuple))
    return _fitting_flat(t)


def _fitting_flat(t: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_boolean(t):
        return st.booleans()
    if pa.types.is_integer(t):
        low = -(2 ** (t.bit_width - 1)) if pa.types.is_signed_integer(t) else 0
        return st.integers(low, low + 2**t.bit_width - 1)
    if pa.types.is_floating(t):
        return st.floats(width=t.bit_width)
    if pa.types.is_decimal(t):
        digits = st.integers(-(10**t.precision) + 1, 10**t.precision - 1)
        return digits.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -t.scale)))
    if pa.types.is_fixed_size_binary(t):
        return st.binary(min_size=t.byte_width, max_size=t.byte_width)
    if "binary" in str(t):
        return st.one_of(st.binary(max_size=6), st.binary(max_size=6).map(bytearray))
    if pa.types.is_timestamp(t):
        return st.one_of(
            st.datetimes(timezones=st.sampled_from(ZONES)), st.datetimes(), st.integers(-(2**63), 2**63 - 1)
        )
    if pa.types.is_date(t):
        return st.one_of(st.dates(), st.integers(-(10**6), 4 * 10**6))
    if pa.types.is_time(t):
        return st.one_of(st.times(), st.integers(0, 86_399))
    if pa.types.is_duration(t):
        return st.one_of(st.timedeltas(), st.integers(-(2**63), 2**63 - 1))
    if pa.types.is_interval(t):
        return st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1))
    return TEXT


def change(value: Any) -> None:
    """Change whatever can be changed in a value, at every depth."""
    if isinstance(value, dict):
        for inside in [*value.values()]:
            change(inside)
        value.clear()
        value["f0"] = "changed"
    elif isinstance(value, list | tuple):
        for inside in value:
            change(inside)
        if isinstance(value, list):
            value[:] = ["changed"]
    elif isinstance(value, bytearray):
        value[:] = b"changed"
    elif type(value).__module__ == "numpy" and getattr(value, "ndim", 0):
        value[:] = value[::-1].copy() if len(value) > 1 else value * 0 if value.dtype.kind != "M" else 0


# ── what it reads back as ───────────────────────────────────────────────────────────────────

_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def is_read_as(sent: Any, found: Any, t: pa.DataType) -> bool:
    """Tell whether `found` is what a value of this type is to be read back as."""
    if found is None:
        return sent is None
    if isinstance(t, pa.BaseExtensionType):
        is_own = t.extension_name in ("arrow.uuid", "arrow.bool8")
        return bool(sent == found) if is_own else is_read_as(sent, found, t.storage_type)
    if pa.types.is_run_end_encoded(t):
        return is_read_as(sent, found, t.value_type)
    if pa.types.is_struct(t):
        return _is_struct(sent, found, t)
    if pa.types.is_map(t):
        pairs = list(sent.items() if isinstance(sent, Mapping) else sent)
        return len(pairs) == len(found) and all(
            is_read_as(k, key, t.key_type) and is_read_as(v, value, t.item_type)
            for (k, v), (key, value) in zip(pairs, found, strict=True)
        )
    if t.num_fields == 1:
        return len(sent) == len(found) and all(map(is_read_as, sent, found, [t.value_type] * len(found)))
    return _is_flat_read_as(sent, found, t)


def _is_struct(sent: Any, found: dict[str, Any], t: pa.StructType) -> bool:
    named = sent if isinstance(sent, Mapping) else dict(zip(found, sent, strict=True))
    return named.keys() <= found.keys() and all(is_read_as(named.get(f.name), found[f.name], f.type) for f in t)


def _is_flat_read_as(sent: Any, found: Any, t: pa.DataType) -> bool:
    if pa.types.is_floating(t) and not isinstance(sent, int):
        shape = {16: "<e", 32: "<f", 64: "<d"}[t.bit_width]
        rounded = struct.unpack(shape, struct.pack(shape, float(sent)))[0]
        return bool(found == rounded or (math.isnan(found) and math.isnan(sent)))
    if pa.types.is_temporal(t) and not pa.types.is_interval(t):
        return _is_time(sent, found, t)
    if "binary" in str(t):
        return isinstance(found, bytes) and bytes(sent) == found
    if type(sent).__module__ == "numpy":
        sent = sent.item()
    return isinstance(sent, bool) == isinstance(found, bool) and bool(sent == found)


def _is_time(sent: Any, found: Any, t: pa.DataType) -> bool:
    if type(sent).__module__ == "numpy":
        sent = sent.astype(sent.dtype.str[1:3] + "[us]").item() if sent.dtype.kind in "mM" else sent.item()
    if isinstance(sent, int):
        return _of_number(sent, t) == _without_zone(found)
    if pa.types.is_timestamp(t):
        return _without_zone(sent) == _without_zone(found)
    return bool(found == (sent.date() if isinstance(sent, dt.datetime) else sent))


def _without_zone(value: Any) -> Any:
    return value.astimezone(dt.UTC).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value


def _of_number(number: int, t: pa.DataType) -> Any:
    if pa.types.is_date(t):
        return dt.date(1970, 1, 1) + dt.timedelta(days=number if pa.types.is_date32(t) else number // 86_400_000)
    if t.unit == "ns":
        assert number % 1000 == 0, "finer than Python's times"
        since = dt.timedelta(microseconds=number // 1000)
    else:
        since = dt.timedelta(microseconds=number * _UNITS[t.unit])
    if pa.types.is_duration(t):
        return since
    return EPOCH + since if pa.types.is_timestamp(t) else (EPOCH + since).time()


def read_back(value: Any, t: pa.DataType, nullable: bool = True) -> Any:
    """Return what a value is given out as."""
    reader = RowReader(pa.schema([pa.field("c", t, nullable)]))
    batch = reader.batch([reader.read({"c": value}), reader.read({"c": value})])
    batch.validate(full=True)
    return batch.to_pylist()[1]["c"]
