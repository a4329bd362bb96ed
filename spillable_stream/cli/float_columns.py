"""Numbers in text that a column of floats would store as other ones: Arrow takes the nearest, or infinity, silently.

A put of rows refuses them too (`spillable_stream.format.value_flat`).
"""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa

from spillable_stream.format.types import leaves
from spillable_stream.format.value_flat import FIRST_INFINITE, exact_float
from spillable_stream.shown_value import shown

__all__ = ["change", "may_change", "narrowest_float", "whole_number"]

_ROUNDED_DIGITS = {16: 4, 32: 8, 64: 16}  # of the least whole number that a float of so many bits does not have


def _shape(c: str) -> str:
    """Return what stands for a character: 0 for a digit, a blank for what may be before a number."""
    return "0" if c in "0123456789" else c if c in '."' or c.isalpha() else " "


_SHAPES = "".join(map(_shape, map(chr, range(128)))).encode() + bytes(128)
_SHAPES_WITH_QUOTES = _SHAPES.replace(b'"', b" ")
_EXPONENT = re.compile(rb"[0-9.][eE]\+?[0-9]")
_MOST_DIGITS = 4300  # of an integer: Python refuses more


def whole_number(text: str) -> int | Decimal:
    """Return a whole number of any length."""
    return int(text) if len(text) < _MOST_DIGITS else Decimal(text)


def change(number: float | Decimal, of: pa.DataType) -> str:
    """Return why a column can't have a number; "" unless it is of floats that would make another one of it.

    Args:
        number: a whole number, which must stay what it is; or a float, which must not become infinite.
        of: the column's type.
    """
    if not pa.types.is_floating(of):
        return ""
    if isinstance(number, float):
        return "" if abs(number) < FIRST_INFINITE[of.bit_width] else f"it is larger than any number of the type {of}"
    if exact_float(of, number) is not None:
        return ""
    return (
        f"{shown(number)} is a whole number that the type {of} would round: create the channel with a column of a "
        "type that holds it, such as decimal128(38, 0), before the load"
    )


def narrowest_float(schema: pa.Schema) -> int | None:
    """Return how many bits the narrowest floats have, at any depth; None if there are none."""
    found = (leaf for field in schema for leaf in leaves(field.type))
    return min((leaf.bit_width for leaf in found if pa.types.is_floating(leaf)), default=None)


def may_change(data: bytes, width: int, *, quoted: bool = False) -> bool:
    """Tell whether a text may have a number that floats of so many bits would change, at the cost of a look.

    Args:
        data: the text.
        width: how many bits.
        quoted: whether a number may be in quotes.
    """
    shape = data.translate(_SHAPES_WITH_QUOTES if quoted else _SHAPES)
    digits = b"0" * _ROUNDED_DIGITS[width]
    if b" " + digits in shape or shape.startswith(digits):
        return True
    return width < 64 and _EXPONENT.search(data) is not None  # Arrow refuses a double that is too large
