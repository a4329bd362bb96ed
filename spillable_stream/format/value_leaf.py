"""Reads one Python value: returns what a row keeps of it, measures that, and builds the error if it does not fit."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spillable_stream.errors import SchemaError
from spillable_stream.shown_value import shown

__all__ = ["GC_HEAD_BYTES", "ColumnPath", "ValueReader", "is_arrow_null", "leaf", "native"]

GC_HEAD_BYTES = 16
"""The size of the garbage collector's header in front of a container; `__sizeof__` leaves it out."""


@dataclass(frozen=True, slots=True)
class ValueReader:
    """Reads the values of one type.

    Args:
        read: returns a plain copy of a value, which equals it and which only the caller holds. Raises `SchemaError`
            for a value that does not fit, such as None.
        size_bytes: how much memory the copy takes: a number of bytes, or a function of the copy.
        are_plain: tells for many values at once whether `read` would return each unchanged; false negatives are
            allowed.
    """

    read: Callable[[Any], Any]
    size_bytes: int | Callable[[Any], int]
    are_plain: Callable[[Sequence[Any]], bool] | None = None


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """A column, or a part of one, for messages.

    Args:
        path: its name: ``a``, ``a.key``, ``a.element``, ``a.field``.
        type: its type.
        wants: the values that it accepts.
    """

    path: str
    type: pa.DataType
    wants: str

    def misfit(self, value: Any, cause: Exception | None = None) -> SchemaError:
        """Return the error for a value that does not fit.

        Args:
            value: the value.
            cause: the exception that reading it raised, if any.
        """
        if value is None:
            return SchemaError(f"a row does not fit the channel's schema: the column {self.path!r} is not nullable")
        why = "" if cause is None else f" ({type(cause).__name__})"
        error = SchemaError(
            f"a row does not fit the channel's schema: {shown(value)} ({type(value).__name__}) is not for the column "
            f"{self.path!r}, which has the type {self.type} and takes {self.wants}{why}"
        )
        error.__cause__ = cause
        return error


def leaf(column: ColumnPath, convert: Callable[[Any], Any], size_bytes: int | Callable[[Any], int]) -> ValueReader:
    """Return the reader of a type without types inside.

    Args:
        column: the column or part, for errors.
        convert: returns the plain copy of a value. Returns None or raises any exception if the value does not fit.
        size_bytes: as in `ValueReader`.
    """

    def read(value: Any) -> Any:
        cause: Exception | None = None
        try:
            found = convert(value)
        except Exception as e:  # a value's own methods may raise anything
            found, cause = None, e
        if found is None:
            raise column.misfit(value, cause)
        return found

    return ValueReader(read, size_bytes)


def native(value: Any) -> Any:
    """Return the Python object that a numpy or Arrow scalar equals; any other value unchanged."""
    if issubclass(type(value), pa.Scalar):
        return value.as_py()
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    if type(value) is numpy.ndarray and value.ndim == 0:
        value = value[()]
    if not issubclass(type(value), numpy.generic):
        return value
    if issubclass(type(value), numpy.datetime64 | numpy.timedelta64):
        return _native_time(value, numpy)
    return value.item()


def _native_time(value: Any, numpy: Any) -> Any:
    """Return the datetime or timedelta that a numpy scalar equals; None if no such value does."""
    kind, (unit, _) = value.dtype.kind, numpy.datetime_data(value.dtype)
    if unit == "generic" or (kind == "m" and unit in "YM"):
        return None  # it has no unit, or one whose length varies
    whole = value.astype(f"{kind}8[us]")
    if whole.astype(value.dtype).astype("i8") != value.astype("i8"):
        return None  # it has fractions of a µs, or the cast overflowed; numpy's own comparison misses the latter
    found = whole.item()  # an integer if it is out of the range of Python's types
    return found if issubclass(type(found), dt.datetime | dt.timedelta) else None


def is_arrow_null(value: Any) -> bool:
    """Tell whether a value is a null Arrow scalar."""
    return issubclass(type(value), pa.Scalar) and not value.is_valid
