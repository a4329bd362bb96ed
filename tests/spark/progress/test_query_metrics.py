"""What a listener tells Prometheus."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

import spillable_stream as ss
import spillable_stream.spark
from spillable_stream.spark.progress.query_listener import QueryListener
from spillable_stream.spark.progress.query_metrics import QueryMetrics
from spillable_stream.spark.progress.query_report import QueryReport
from tests.support.events import numbered, put
from tests.support.no_threads import no_threads
from tests.support.spark.events import end_offset, tell
from tests.support.spark.reader_process import plan, reader
from tests.support.spark.versions import needs

pytestmark = [pytest.mark.spark, needs(4, 2, "a source that says to its query's progress what a listener must know")]


Open = Callable[..., ss.Channel]


def test_series_count_what_the_listener_committed(open_channel: Open, path: Path) -> None:
    registry = CollectorRegistry()
    listener = QueryListener(None, QueryMetrics(registry), {})
    put(open_channel(), *numbered(0, 25))
    source = reader(str(path))
    start = source.initialOffset()
    for batch in range(2):
        event = plan(source, start, batch)
        tell(listener, event)
        start = end_offset(event)
        source.commit(start)
    labels = f'{{channel="{path}",group="default",query="{event["progress"]["id"]}"}}'
    text = generate_latest(registry).decode()
    assert f"spillable_query_commits_total{labels} 2.0" in text
    assert f"spillable_query_lag_events{labels} 5.0" in text
    assert f"spillable_query_last_batch{labels} 1.0" in text
    source.stop()
    listener._close_channels()


def test_series_are_served_at_a_port(spark: SparkSession) -> None:
    listener = spillable_stream.spark.listener(spark, prometheus=0)
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.prometheus_port}/metrics", timeout=60) as answer:
        assert b"spillable_query_lag_events" in answer.read()
    listener.close()
    with pytest.raises(ss.OptionError, match="a port or a CollectorRegistry"):
        spillable_stream.spark.listener(spark, prometheus="9090")


REPORT = QueryReport("q", "id", "run", "uuid", "/c", "g", True, 3, 40, 5, 2.5, 1.5)
LABELS = {"query": "q", "channel": "/c", "group": "g"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def value(registry: CollectorRegistry, name: str, labels: dict[str, str] = LABELS) -> float | None:
    return registry.get_sample_value(f"spillable_query_{name}", labels)


def gauges(registry: CollectorRegistry) -> list[float | None]:
    names = ("active", "lag_events", "oldest_age_seconds", "events_per_second", "last_batch")
    return [value(registry, name) for name in names]


def test_a_report_sets_the_gauges(registry: CollectorRegistry) -> None:
    metrics = QueryMetrics(registry)
    metrics.show(REPORT)
    assert gauges(registry) == [1, 5, 1.5, 2.5, 3]
    metrics.show(replace(REPORT, lag_events=0, oldest_age_seconds=None))
    assert gauges(registry) == [1, 0, 0, 2.5, 3], "of nothing the age is 0"


def test_what_cannot_be_told_has_no_series(registry: CollectorRegistry) -> None:
    metrics = QueryMetrics(registry)
    metrics.show(REPORT)
    metrics.show(replace(REPORT, lag_events=None, oldest_age_seconds=None))
    assert gauges(registry) == [1, None, None, 2.5, 3]


def test_a_query_that_is_over_is_not_active_and_has_no_other_gauge(registry: CollectorRegistry) -> None:
    metrics = QueryMetrics(registry)
    metrics.show(REPORT)
    metrics.show(replace(REPORT, active=False))
    assert gauges(registry) == [0, None, None, None, None]


def test_what_was_done_is_counted(registry: CollectorRegistry) -> None:
    metrics = QueryMetrics(registry)
    metrics.count(REPORT, events=10, commits=2)
    metrics.count(REPORT, events=5, commits=0, batches=3)
    assert [value(registry, f"{n}_total") for n in ("events", "batches", "commits")] == [15, 4, 2]


def test_a_query_without_a_name_a_path_or_a_group_has_labels_anyway(registry: CollectorRegistry) -> None:
    QueryMetrics(registry).show(replace(REPORT, query=None, path=None, group=None))
    assert value(registry, "active", {"query": "id", "channel": "uuid", "group": ""}) == 1


def test_a_query_that_is_forgotten_has_no_series(registry: CollectorRegistry) -> None:
    metrics = QueryMetrics(registry)
    other = {**LABELS, "query": "other"}
    for report in (REPORT, replace(REPORT, query="other")):
        metrics.show(report)
        metrics.count(report, events=1, commits=1)
    metrics.forget(REPORT)
    metrics.forget(REPORT)
    assert gauges(registry) == [None] * 5 and value(registry, "events_total") is None
    assert value(registry, "active", other) == value(registry, "events_total", other) == 1


def test_a_registry_has_the_series_of_one_listener(registry: CollectorRegistry) -> None:
    QueryMetrics(registry)
    with pytest.raises(ss.OptionError, match="this registry has the series of another listener"):
        QueryMetrics(registry)


@pytest.mark.parametrize("wrong", [True, "9090", None, 1.5])
def test_what_is_neither_a_port_nor_a_registry_is_refused(wrong: Any) -> None:
    with pytest.raises(ss.OptionError, match="prometheus must be a port or a CollectorRegistry"):
        QueryMetrics(wrong)


def test_a_port_is_served_until_the_close() -> None:
    metrics = QueryMetrics(0)
    url = f"http://127.0.0.1:{metrics.port}/metrics"
    metrics.show(REPORT)
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert b'spillable_query_active{channel="/c",group="g",query="q"} 1.0' in answer.read()
    metrics.close()
    metrics.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=60)


def test_a_port_that_no_thread_can_serve_is_refused() -> None:
    with no_threads(), pytest.raises(ss.StorageError, match="raise this user's limit of processes"):
        QueryMetrics(0)


def test_what_the_handler_of_a_signal_raises_is_not_taken_for_the_lack_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise RuntimeError("of a handler")

    monkeypatch.setattr("prometheus_client.start_http_server", interrupted)
    with pytest.raises(RuntimeError, match="of a handler"):
        QueryMetrics(0)
