"""Spark's own limits of a micro-batch, which Spark has had since 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillable_stream.spark.source.read_options import StreamOptions

try:  # Spark 4.2 and later
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1 pass no limits
    if not TYPE_CHECKING:

        class ReadAllAvailable:
            """Stands for the class that this Spark does not have."""

        class SupportsTriggerAvailableNow:
            """Stands for the class that this Spark does not have."""

        ReadLimit = ReadMaxBytes = ReadMaxRows = ReadMinRows = Any

__all__ = ["ReadLimit", "SupportsTriggerAvailableNow", "default_limit", "is_everything"]


def default_limit(options: StreamOptions) -> ReadLimit:
    """Return the limit that a stream's options ask for."""
    if options.max_events_per_trigger:
        return ReadMaxRows(options.max_events_per_trigger)
    if options.max_bytes_per_trigger:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_events_per_trigger:
        return ReadMinRows(options.min_events_per_trigger)
    return ReadAllAvailable()


def is_everything(limit: ReadLimit | None) -> bool:
    """Tell whether Spark wants everything there is, whatever the options' limits."""
    return isinstance(limit, ReadAllAvailable)
