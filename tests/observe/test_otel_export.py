"""OpenTelemetry's instruments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from spillable_stream import Channel, otel_metrics
from spillable_stream.observe.metric_names import METRICS
from spillable_stream.observe.otel_export import otel_name
from tests.support.delays import put_late
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


def collected(reader: InMemoryMetricReader) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what is reported, by name and attributes."""
    data = reader.get_metrics_data()
    metrics = [] if data is None else [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return {m.name: {tuple(map(str, p.attributes.values())): p.value for p in m.data.data_points} for m in metrics}


def test_every_metric_is_an_instrument_with_a_name_a_unit_and_the_value(open_channel: Open, tmp_path: Path) -> None:
    channel, reader = open_channel(), InMemoryMetricReader()
    put(channel, *numbered(0, 20))
    take(channel, 5, "a")
    put_late(channel, 3600, b"later")
    path, missing = str(channel.path), str(tmp_path / "missing")
    with otel_metrics([channel, missing], MeterProvider([reader])) as reporting:
        found = collected(reader)
        assert found.keys() == {otel_name(m) for m in METRICS if "_spool_" not in m.name and "_worker_" not in m.name}
        assert found["spillable.channel.up"] == {(path,): 1, (missing,): 0}
        assert found["spillable.channel.put_events"] == {(path,): 20}
        assert found["spillable.channel.events"] == {(path, "memory"): 0, (path, "disk"): 16}  # and one that waits
        assert found["spillable.group.lag_events"] == {(path, "a"): 15}
        data = reader.get_metrics_data()
        assert data is not None
        units = {m.name: m.unit for m in data.resource_metrics[0].scope_metrics[0].metrics}
        assert units["spillable.channel.payload_bytes"] == "By"
        assert units["spillable.group.oldest_age_seconds"] == "s"
        reporting.close()
        assert collected(reader) == {}


def test_one_collection_looks_at_the_channels_once(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, reader, looks = open_channel(), InMemoryMetricReader(), []
    real = channel.stats
    monkeypatch.setattr(channel, "stats", lambda: (looks.append(1), real())[1])
    with otel_metrics([channel], MeterProvider([reader])):
        collected(reader)
    assert len(looks) == 1


def test_without_opentelemetry_the_error_names_the_extra(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ImportError, match=r"spillable-stream\[otel\]"):
        otel_metrics([open_channel()])


def test_the_name_of_a_channel_that_is_not_utf_8_is_text_for_an_exporter(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    with otel_metrics([os.fsdecode(os.fsencode(tmp_path) + b"/\xff")], MeterProvider([reader])):
        ((path,),) = collected(reader)["spillable.channel.up"]
    assert path.encode().startswith(os.fsencode(tmp_path))
