"""How one Python value is read: what a row keeps of it, how much that holds, and what is said if it does not fit."""

from __future__ import annotations

import datetime as dt
import reprlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spillable_stream.errors import SchemaError

__all__ = ["GC_HEAD_BYTES", "Place", "Reader", "is_arrow_null", "leaf", "native", "shown"]

GC_HEAD_BYTES = 16
"""What a container has before it for the garbage collector, which `__sizeof__` leaves out."""

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = 80


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the values of one type.

    Args:
        read: returns what is kept of a value: a plain object that equals it, and that nobody else can change; raises
            `SchemaError` for one that does not fit, as None never does.
        size_bytes: how much memory such an object holds: a number, or a function of the object.
        are_plain: tells of many values at once whether `read` would keep each as it is; it may say no where that is so.
    """

    read: Callable[[Any], Any]
    size_bytes: int | Callable[[Any], int]
    are_plain: Callable[[Sequence[Any]], bool] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A column, or a part of one, for messages.

    Args:
        path: its name: ``a``, ``a.key``, ``a.element``, ``a.field``.
        type: its type.
        wants: what it takes.
    """

    path: str
    type: pa.DataType
    wants: str

    def misfit(self, value: Any, cause: Exception | None = None) -> SchemaError:
        """Return the error for a value that does not fit, because of an exception of its own or by itself."""
        if value is None:
            return SchemaError(f"a row does not fit the channel's schema: the column {self.path!r} is not nullable")
        why = "" if cause is None else f" ({type(cause).__name__})"
        error = SchemaError(
            f"a row does not fit the channel's schema: {shown(value)} ({type(value).__name__}) is not for the column "
            f"{self.path!r}, which has the type {self.type} and takes {self.wants}{why}"
        )
        error.__cause__ = cause
        return error


def shown(value: Any) -> str:
    """Return a short text for any value."""
    try:
        return _shortened.repr(value)
    except Exception:  # anybody's code
        return f"a {type(value).__name__}"


def leaf(place: Place, convert: Callable[[Any], Any], size_bytes: int | Callable[[Any], int]) -> Reader:
    """Return the reader of a type that has nothing inside.

    Args:
        place: where it is.
        convert: returns the plain object; None, or any exception, for a value that does not fit.
        size_bytes: as of `Reader`.
    """

    def read(value: Any) -> Any:
        cause: Exception | None = None
        try:
            found = convert(value)
        except Exception as e:  # a value's own methods raise what they like
            found, cause = None, e
        if found is None:
            raise place.misfit(value, cause)
        return found

    return Reader(read, size_bytes)


def native(value: Any) -> Any:
    """Return Python's own object for a scalar of numpy or Arrow, and anything else as it is."""
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
    """Return the datetime or the timedelta that a scalar of numpy equals; None if there is none."""
    kind, (unit, _) = value.dtype.kind, numpy.datetime_data(value.dtype)
    if unit == "generic" or (kind == "m" and unit in "YM"):
        return None  # a number of nothing; years and months are of no one length
    whole = value.astype(f"{kind}8[us]")
    if whole.astype(value.dtype).astype("i8") != value.astype("i8"):
        return None  # it is finer, or the cast ran over: numpy compares such as if it had not
    found = whole.item()  # an integer if it is further than Python's times
    return found if issubclass(type(found), dt.datetime | dt.timedelta) else None


def is_arrow_null(value: Any) -> bool:
    """Tell whether a value is a scalar of Arrow that is null."""
    return issubclass(type(value), pa.Scalar) and not value.is_valid
