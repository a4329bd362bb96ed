"""The metrics of channels for prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spillable_stream.observe.metric_names import METRICS, MetricKind
from spillable_stream.observe.observer import Observer
from spillable_stream.shown_value import encodable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["ChannelCollector", "prometheus_registry"]


class ChannelCollector:
    """What a registry of prometheus-client asks for metrics, at each scrape.

    Args:
        observer: looks at the channels.
        max_age_seconds: how old a look may be that is used again.
    """

    def __init__(self, observer: Observer, max_age_seconds: float = 0.0) -> None:
        self._observer = observer
        self._max_age_seconds = max_age_seconds

    def collect(self) -> Iterator[Any]:
        """Look at the channels, and yield the families of metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        observations = self._observer.observe(max_age_seconds=self._max_age_seconds)
        for metric in METRICS:
            family = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            found = family(metric.name, metric.text, labels=metric.labels)
            for seen in observations:
                for labels, value in metric.points(seen):
                    found.add_metric([encodable(label) for label in labels], value)
            if found.samples:
                yield found

    def describe(self) -> list[Any]:
        """Return nothing, so that a registry does not look at the channels when it gets this."""
        return []


def prometheus_registry(observer: Observer, max_age_seconds: float = 0.0) -> CollectorRegistry:
    """Return a new registry with the metrics of some channels.

    Args:
        observer: looks at the channels.
        max_age_seconds: how old a look may be that is used again.

    Raises:
        ImportError: prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as e:
        raise ImportError(
            "metrics for Prometheus need prometheus-client: pip install 'spillable-stream[prometheus]'"
        ) from e
    registry = CollectorRegistry()
    registry.register(ChannelCollector(observer, max_age_seconds))
    return registry
