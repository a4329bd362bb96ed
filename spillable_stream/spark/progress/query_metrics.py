"""The Prometheus metrics of a listener."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from spillable_stream.errors import OptionError
from spillable_stream.own_thread import no_thread_error
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from spillable_stream.spark.progress.query_report import QueryReport

__all__ = ["QueryMetrics"]

_LABELS = ("query", "channel", "group")


class QueryMetrics:
    """Time series with the labels query (its name, or its ID), channel (its path, or its UUID) and group.

    Args:
        prometheus: a ``CollectorRegistry`` to register with; or a port, to serve a separate registry over HTTP on all
            interfaces, like prometheus-client. Port 0 chooses a free one.

    Attributes:
        port: the port; None with a registry.

    Raises:
        ImportError: prometheus-client is not installed.
        OptionError: ``prometheus`` is neither a registry nor a port, or the registry has these series already.
        OSError: the port is not available.
        StorageError: the process can have no more threads.
    """

    def __init__(self, prometheus: int | CollectorRegistry) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as e:
            raise ImportError("prometheus= needs prometheus-client: pip install 'spillable-stream[prometheus]'") from e
        self.port: int | None = None
        self._server: Any = None
        serve = isinstance(prometheus, int) and not isinstance(prometheus, bool)
        registry = CollectorRegistry() if serve else prometheus
        if not hasattr(registry, "register"):
            raise OptionError(f"prometheus must be a port or a CollectorRegistry, not {shown(prometheus)}")
        try:
            self._gauges = {
                name: Gauge(f"spillable_query_{name}", text, _LABELS, registry=registry)
                for name, text in (
                    ("active", "Whether the query runs: 1 or 0."),
                    ("lag_events", "Events that the query has yet to take."),
                    ("oldest_age_seconds", "Age of the oldest event that the query has yet to take; 0 if none."),
                    ("events_per_second", "Events per second in the query's last batch; 0 while it is idle."),
                    ("last_batch", "ID of the last batch that is done."),
                )
            }
            self._counters = {
                name: Counter(f"spillable_query_{name}", text, _LABELS, registry=registry)
                for name, text in (
                    ("events", "Events in batches that are done."),
                    ("batches", "Batches that are done."),
                    ("commits", "Take transactions that the listener committed."),
                )
            }
        except ValueError as e:
            raise OptionError(f"this registry has the series of another listener: {e}; give each its own") from e
        if serve:
            try:
                self._server, _ = start_http_server(prometheus, registry=registry)
            except RuntimeError as e:
                raise no_thread_error("spillable-query-metrics", e) from e
            self.port = self._server.server_port

    def show(self, report: QueryReport) -> None:
        """Set the gauges. An unknown value has no series; a query that has ended only has the series "active"."""
        labels = _labels(report)
        values = {
            "active": int(report.active),
            "lag_events": report.lag_events,
            "oldest_age_seconds": 0.0 if report.lag_events == 0 else report.oldest_age_seconds,
            "events_per_second": report.events_per_second,
            "last_batch": report.last_batch,
        }
        for name, value in values.items():
            if value is not None and (report.active or name == "active"):
                self._gauges[name].labels(*labels).set(value)
            else:
                _remove(self._gauges[name], labels)

    def count(self, report: QueryReport, *, events: int, commits: int, batches: int = 1) -> None:
        """Add to the counters."""
        labels = _labels(report)
        for name, value in (("events", events), ("batches", batches), ("commits", commits)):
            self._counters[name].labels(*labels).inc(value)

    def forget(self, report: QueryReport) -> None:
        """Remove the series of a query."""
        for metric in (*self._gauges.values(), *self._counters.values()):
            _remove(metric, _labels(report))

    def close(self) -> None:
        """Stop the HTTP server, if there is one."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _labels(report: QueryReport) -> tuple[str, str, str]:
    return report.query or report.query_id, report.path or report.channel, report.group or ""


def _remove(metric: Any, labels: tuple[str, str, str]) -> None:
    with contextlib.suppress(KeyError):  # it has none
        metric.remove(*labels)
