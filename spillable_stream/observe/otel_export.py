"""The metrics of channels for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from spillable_stream.arguments import instance
from spillable_stream.channel.channel import Channel
from spillable_stream.observe.metric_names import METRICS, Metric, MetricKind
from spillable_stream.observe.observer import Observer
from spillable_stream.shown_value import encodable

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["OtelMetrics", "otel_metrics", "otel_name"]

_MAX_AGE_SECONDS = 0.5  # all instruments of one collection have the same look
_UNITS = {"events": "{event}", "bytes": "By", "seconds": "s", "transactions": "{transaction}", "ratio": "1"}


def otel_name(metric: Metric) -> str:
    """Return a metric's name as OpenTelemetry writes names: ``spillable.channel.fill_ratio``."""
    return metric.name.replace("_", ".", 2)


class OtelMetrics:
    """Channels whose metrics a meter provider collects; made by `otel_metrics`."""

    def __init__(self, observer: Observer, provider: MeterProvider) -> None:
        from opentelemetry.metrics import Observation as OtelPoint

        self._observer = observer
        self._is_closed = False
        meter = provider.get_meter("spillable_stream")

        def reporting(metric: Metric) -> Callable[[Any], Iterable[OtelPoint]]:
            def report(_: Any) -> Iterable[OtelPoint]:
                if self._is_closed:
                    return []
                observations = observer.observe(max_age_seconds=_MAX_AGE_SECONDS)
                points = [point for seen in observations for point in metric.points(seen)]
                return [OtelPoint(v, dict(zip(metric.labels, map(encodable, ls), strict=True))) for ls, v in points]

            return report

        for metric in METRICS:
            make = (
                meter.create_observable_counter if metric.kind is MetricKind.COUNTER else meter.create_observable_gauge
            )
            unit = _UNITS.get(metric.name.rpartition("_")[2], "1")
            make(otel_name(metric), [reporting(metric)], unit, metric.text)

    def close(self) -> None:
        """Report nothing more, and close what was opened."""
        self._is_closed = True
        self._observer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def otel_metrics(
    channels: Iterable[Channel | str | PathLike[str]], provider: MeterProvider | None = None
) -> OtelMetrics:
    """Report the metrics of channels to OpenTelemetry: observable gauges and counters, read when they are collected.

    Args:
        channels: handles, which stay open, and paths, which are opened read-only.
        provider: the meter provider; None for the global one.

    Returns:
        The reporting; its ``close`` ends it.

    Raises:
        ImportError: OpenTelemetry is not installed.
        OptionError: there are no channels, one is given twice, or ``provider`` is not one.
    """
    try:
        from opentelemetry.metrics import MeterProvider, get_meter_provider
    except ImportError as e:
        raise ImportError("otel_metrics needs opentelemetry-sdk: pip install 'spillable-stream[otel]'") from e
    if provider is not None:
        instance("provider", provider, MeterProvider)  # type: ignore[type-abstract]
    return OtelMetrics(Observer(channels), provider or get_meter_provider())
