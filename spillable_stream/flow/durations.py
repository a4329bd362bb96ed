"""Time spans as texts, many at once (`spillable_stream.quantities` has one)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["durations_us"]

_PATTERN = r"^\s*(?P<number>[0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(?P<unit>|ms|s|m|h|d)\s*$"
_UNITS = pa.array(["", "ms", "s", "m", "h", "d"])
_UNITS_US = pa.array([1e6, 1e3, 1e6, 60e6, 3600e6, 86_400e6])


def durations_us(texts: pa.StringArray) -> pa.Int64Array:
    """Return time spans in microseconds; null for a text that is none."""
    found = pc.extract_regex(texts, _PATTERN)
    number, unit = (pc.struct_field(found, name) for name in ("number", "unit"))
    units_us = _UNITS_US.take(pc.index_in(unit, _UNITS))
    return pc.round(pc.multiply(number.cast(pa.float64()), units_us)).cast(pa.int64())
