"""The Spark source and sink, ``format("spillable")``, and what watches their queries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spillable_stream.spark.query_listener import QueryListener, QueryReport, listener

__all__ = ["QueryListener", "QueryReport", "listener"]


def __getattr__(name: str) -> Any:
    """Import what needs pyspark when it is asked for."""
    if name in __all__:
        return getattr(import_module("spillable_stream.spark.query_listener"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
