"""How events become the bytes of a text file."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["HeaderAndText", "Serializer", "Text", "serializer"]


@runtime_checkable
class Serializer(Protocol):
    """Turns events into bytes."""

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer | bytes:
        """Return the bytes of some events."""


class Text:
    """Writes bodies, each with a line feed behind it.

    Args:
        append_newline: whether there are line feeds.
    """

    def __init__(self, append_newline: bool = True) -> None:
        self._end = b"\n" if append_newline else b""

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer | bytes:
        """Return the bytes; see `Serializer.encode`."""
        return _values(self.bodies(batch.column(1)))

    def bodies(self, bodies: pa.Array) -> pa.Array:
        """Return bodies with their ends."""
        if bodies.null_count:
            bodies = bodies.fill_null(b"")
        if not self._end:
            return bodies
        return pc.binary_join_element_wise(bodies, pa.scalar(self._end, bodies.type), pa.scalar(b"", bodies.type))


class HeaderAndText(Text):
    """Writes ``{name=value, name=value} body``, as Flume does."""

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer | bytes:
        """Return the bytes; see `Serializer.encode`."""
        shown = ["{" + ", ".join(f"{k}={v}" for k, v in h or ()) + "} " for h in batch.column(0).to_pylist()]
        headers, bodies = pa.array(shown, pa.string()).cast(pa.binary()), self.bodies(batch.column(1))
        return _values(pc.binary_join_element_wise(headers, bodies, pa.scalar(b"", pa.binary())))


def _values(array: pa.Array) -> pa.Buffer | bytes:
    """Return the bytes of all values, without a copy."""
    values = array.buffers()[2]
    if values is None or not len(array):
        return b""
    offsets = pa.Array.from_buffers(pa.int32(), array.offset + len(array) + 1, [None, array.buffers()[1]])
    first, last = offsets[array.offset].as_py(), offsets[array.offset + len(array)].as_py()
    return values.slice(first, last - first)


def serializer(name: str, properties: Mapping[str, str] | None = None, *, append_newline: bool = True) -> Serializer:
    """Return a serializer by Flume's name, or an object of a Python class.

    Args:
        name: TEXT, HEADER_AND_TEXT, or ``module:Class`` or ``module.Class`` with a method ``encode(batch)``.
        properties: what a class of the user's own is built from.
        append_newline: whether a line feed follows each body.

    Raises:
        OptionError: there is none of this name.
    """
    given = dict(properties or {})
    if "appendNewline" in given:
        append_newline = given["appendNewline"].lower() == "true"
    upper = name.upper()
    if upper == "TEXT" or name.endswith("BodyTextEventSerializer$Builder"):
        return Text(append_newline)
    if upper == "HEADER_AND_TEXT" or name.endswith("HeaderAndBodyTextEventSerializer$Builder"):
        return HeaderAndText(append_newline)
    if upper == "AVRO_EVENT" or name.endswith("AvroEventSerializer$Builder"):
        raise OptionError(
            f"the serializer {name} is not supported; use a sink of type parquet, which keeps headers and bodies, or "
            "HEADER_AND_TEXT"
        )
    module, _, found = name.replace(":", ".").rpartition(".")
    if not module:
        raise OptionError(f"there is no serializer {shown(name)}; give TEXT, HEADER_AND_TEXT or module:Class")
    try:
        return cast(Serializer, getattr(importlib.import_module(module), found)(**given))
    except (ImportError, AttributeError, ValueError, TypeError) as e:
        raise OptionError(
            f"there is no serializer {shown(name)} ({e}); give TEXT, HEADER_AND_TEXT or module:Class"
        ) from e
