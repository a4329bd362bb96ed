"""Readers of numbers, strings and bytes. They refuse values that Arrow would round, encode or coerce silently."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

import pyarrow as pa

from spillable_stream.format.value_leaf import ColumnPath, ValueReader, leaf, native

__all__ = ["FIRST_INFINITE", "exact_float", "number_reader", "text_reader"]

FIRST_INFINITE = {16: 65_520.0, 32: (2 - 2**-24) * 2.0**127, 64: math.inf}
"""The least number that a float of so many bits rounds to infinity."""

_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
_FLOAT_BYTES = 24
_DECIMAL_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
_DECIMAL_BYTES = 104
_UUID_BYTES = 100


# ── numbers ─────────────────────────────────────────────────────────────────────────────────


def number_reader(t: pa.DataType, path: str) -> ValueReader | None:
    """Return the reader of a numeric or boolean type; None for any other type."""
    if pa.types.is_boolean(t) or _is_extension(t, "arrow.bool8"):
        return _booleans(t, path)
    if pa.types.is_integer(t):
        return _integers(t, path)
    if pa.types.is_floating(t):
        return _floats(t, path)
    if pa.types.is_decimal(t):
        return _decimals(t, path)
    return None


def _is_extension(t: pa.DataType, name: str) -> bool:
    return isinstance(t, pa.BaseExtensionType) and t.extension_name == name


def _booleans(t: pa.DataType, path: str) -> ValueReader:
    def convert(value: Any) -> Any:
        value = native(value)
        return value if type(value) is bool else None

    slow = leaf(ColumnPath(path, t, "True or False"), convert, 0)
    return ValueReader(lambda value: value if type(value) is bool else slow.read(value), 0, lambda vs: _all(bool, vs))


def _integers(t: pa.DataType, path: str) -> ValueReader:
    signed, bits = pa.types.is_signed_integer(t), t.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def convert(value: Any) -> Any:
        value = native(value)
        kind = type(value)
        if issubclass(kind, bool):
            return None
        if issubclass(kind, int):
            number = int.__index__(value)
        elif issubclass(kind, float) and float.is_integer(value):
            number = float.__int__(value)
        elif issubclass(kind, Decimal) and Decimal.adjusted(value) < 20 and Decimal.__int__(value) == value:
            number = Decimal.__int__(value)
        else:
            return None
        return number if low <= number <= high else None

    slow = leaf(ColumnPath(path, t, f"a whole number from {low} to {high}"), convert, _int_bytes).read

    def read(value: Any) -> Any:
        return value if type(value) is int and low <= value <= high else slow(value)

    def are_plain(values: Sequence[Any]) -> bool:
        return _all(int, values) and low <= min(values) and max(values) <= high

    return ValueReader(read, 0 if bits == 8 and not signed else _int_bytes, are_plain)


def _all(kind: type, values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {kind}


def _int_bytes(value: int) -> int:
    return 0 if -5 <= value <= 256 else 32  # Python shares small integers


def _floats(t: pa.DataType, path: str) -> ValueReader:
    infinite, shape = FIRST_INFINITE[t.bit_width], _FLOAT_FORMATS[t.bit_width]
    half, double = t.bit_width == 16, t.bit_width == 64

    def convert(value: Any) -> Any:
        value = native(value)
        kind = type(value)
        if issubclass(kind, float):
            number = float.__float__(value)
            if infinite <= abs(number) < math.inf:
                return None
            return struct.unpack(shape, struct.pack(shape, number))[0] if half else number
        if not issubclass(kind, int) or issubclass(kind, bool):
            return None
        return exact_float(t, int.__index__(value))

    wants = "a float that is not too large, or a whole number that it has exactly"
    slow = leaf(ColumnPath(path, t, wants), convert, _FLOAT_BYTES).read
    if double:

        def read(value: Any) -> Any:
            return value if type(value) is float else slow(value)

        return ValueReader(read, _FLOAT_BYTES, lambda vs: _all(float, vs))
    return ValueReader(slow, _FLOAT_BYTES)


def exact_float(t: pa.DataType, whole: int | Decimal) -> float | None:
    """Return a whole number as a float type has it; None where that would be another number."""
    shape = _FLOAT_FORMATS[t.bit_width]
    try:
        number: float = struct.unpack(shape, struct.pack(shape, whole))[0]
    except (OverflowError, struct.error):  # it is larger than all of them
        return None
    return number if number == whole else None


def _decimals(t: pa.DataType, path: str) -> ValueReader | None:
    most = _DECIMAL_DIGITS[t.bit_width]
    precision = min(t.precision, most + min(t.scale, 0))  # Arrow stores the zeros of a negative scale as digits
    if precision < 1 or t.scale > most:
        return None  # Arrow can't convert such decimals from or to Python objects
    unit = Decimal((0, (1,), -t.scale))
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def convert(value: Any) -> Any:
        value = native(value)
        kind = type(value)
        if issubclass(kind, int) and not issubclass(kind, bool):
            whole = int.__index__(value)
            return context.quantize(Decimal(whole), unit) if whole.bit_length() < 300 else None
        if not issubclass(kind, Decimal) or not Decimal.is_finite(value):
            return None
        return context.quantize(value, unit)  # threads may share the context: nobody reads its flags

    places = f"{precision} digits, {t.scale} of them after the point"
    return leaf(ColumnPath(path, t, f"a Decimal or an int of at most {places}"), convert, _DECIMAL_BYTES)


# ── strings and bytes ───────────────────────────────────────────────────────────────────────


def text_reader(t: pa.DataType, path: str) -> ValueReader | None:
    """Return the reader of a type of strings or bytes; None for any other type."""
    is_text = pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t)
    if is_text or _is_extension(t, "arrow.json"):
        return _texts(t, path)
    if pa.types.is_fixed_size_binary(t):
        return _bytes(t, path, t.byte_width)
    if pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t):
        return _bytes(t, path, None)
    if _is_extension(t, "arrow.uuid"):
        return _uuids(t, path)
    return None


def _texts(t: pa.DataType, path: str) -> ValueReader:
    def convert(value: Any) -> Any:
        value = native(value)
        text = str.__str__(value)  # raises for other types, and converts an instance of a subclass to a plain str
        if not text.isascii():
            text.encode()
        return text

    slow = leaf(ColumnPath(path, t, "a str of valid Unicode"), convert, _text_bytes).read

    def read(value: Any) -> Any:
        return value if type(value) is str and value.isascii() else slow(value)

    return ValueReader(read, _text_bytes, lambda vs: _all(str, vs) and all(map(str.isascii, vs)))


def _text_bytes(text: str) -> int:
    if len(text) < 2 and text <= "\xff":
        return 0  # Python shares these
    size_bytes = text.__sizeof__()
    return size_bytes if text.isascii() else size_bytes * 5 // 4  # Arrow makes Python cache the UTF-8 form too


def _bytes(t: pa.DataType, path: str, width: int | None) -> ValueReader:
    def convert(value: Any) -> Any:
        value = native(value)
        kind = type(value)
        if issubclass(kind, bytes):
            found = bytes.__bytes__(value)
        elif issubclass(kind, bytearray | pa.Buffer):
            found = memoryview(value).tobytes()
        elif kind is memoryview:
            found = value.tobytes()
        else:
            return None
        return found if width is None or len(found) == width else None

    wants = "bytes, a bytearray or a memoryview" + ("" if width is None else f", {width} long")
    slow = leaf(ColumnPath(path, t, wants), convert, _bytes_bytes).read
    if width is not None:
        return ValueReader(slow, _bytes_bytes)

    def read(value: Any) -> Any:
        return value if type(value) is bytes else slow(value)

    return ValueReader(read, _bytes_bytes, lambda vs: _all(bytes, vs))


def _bytes_bytes(value: bytes) -> int:
    return len(value) + 33 if len(value) > 1 else 0  # Python shares short ones


def _uuids(t: pa.DataType, path: str) -> ValueReader:
    def convert(value: Any) -> Any:
        value = native(value)
        if issubclass(type(value), UUID):
            return UUID(int=value.int)
        return UUID(bytes=bytes.__bytes__(value))

    return leaf(ColumnPath(path, t, "a UUID, or its 16 bytes"), convert, _UUID_BYTES)
