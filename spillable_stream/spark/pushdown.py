"""Filters that a batch read takes over from Spark: on ``write_order_id`` and ``put_time``.

Spark hands them over where ``spark.sql.python.filterPushdown.enabled`` is true (Spark 4.1 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import DataSourceReader

from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.spark.metadata import PUT_TIME_COLUMN

__all__ = ["Bounds", "OfferedFilters"]

_LAST = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bounds:
    """What filters leave of a channel.

    Attributes:
        ids: the first and the last write-order ID.
        times_us: the first and the last time of the put, in microseconds since 1970.
    """

    def __init__(self) -> None:
        self.ids = (0, _LAST)
        self.times_us = (-_LAST, _LAST)

    def take(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Narrow the bounds and yield the filters that Spark must still apply.

        Args:
            filters: Spark's filters, all of which hold for every row that is wanted.
        """
        for f in filters:
            column = f.attribute[0] if len(getattr(f, "attribute", ())) == 1 else ""
            kind, value = type(f).__name__, getattr(f, "value", None)
            if column == ID_COLUMN and type(value) is int and (span := _span(kind, value)):
                self.ids = _both(self.ids, span)
                continue
            if column in (ID_COLUMN, PUT_TIME_COLUMN) and kind == "IsNotNull":
                continue
            if column == PUT_TIME_COLUMN and isinstance(value, datetime) and value.tzinfo is not None:
                since: timedelta = value - _EPOCH
                if span := _span(kind, since // timedelta(microseconds=1)):
                    self.times_us = _both(self.times_us, span)
            yield f


def _span(kind: str, value: int) -> tuple[int, int] | None:
    """Return the integers that a filter lets through, if they are a span."""
    spans = {
        "EqualTo": (value, value),
        "EqualNullSafe": (value, value),
        "GreaterThan": (value + 1, _LAST),
        "GreaterThanOrEqual": (value, _LAST),
        "LessThan": (-_LAST, value - 1),
        "LessThanOrEqual": (-_LAST, value),
    }
    return spans.get(kind)


def _both(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return max(a[0], b[0]), min(a[1], b[1])


class OfferedFilters:
    """A ``pushFilters`` that may be there while Spark's switch is off.

    Spark refuses a reader whose method is not the base class's own while
    ``spark.sql.python.filterPushdown.enabled`` is false, which is the default
    (``plan_data_source_read.py``); it looks at ``__func__``.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", lambda: None))

    def __init__(self, take: Callable[[Iterable[Any]], Iterator[Any]]) -> None:
        self._take = take

    def __call__(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Take the filters over and yield those that Spark must still apply."""
        return self._take(filters)
