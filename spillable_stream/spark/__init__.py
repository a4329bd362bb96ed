"""The Spark source and sink, ``format("spillable")``, what watches their queries, and what their errors say."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spillable_stream.spark.error_message import explain

if TYPE_CHECKING:
    from spillable_stream.spark.progress.query_listener import QueryListener, QueryReport, listener

__all__ = ["QueryListener", "QueryReport", "explain", "listener"]


def __getattr__(name: str) -> Any:
    """Import what needs pyspark when it is asked for."""
    if name in __all__:
        return getattr(import_module("spillable_stream.spark.progress.query_listener"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
