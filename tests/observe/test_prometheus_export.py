"""Prometheus' text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spillable_stream import Channel
from spillable_stream.observe.metric_names import METRICS
from spillable_stream.observe.observer import Observer
from spillable_stream.observe.prometheus_export import prometheus_registry
from tests.observe.test_metric_names import NEEDS_PROMTOOL, PROMTOOL
from tests.support.delays import put_late
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


def test_the_text_has_each_metric_with_its_meaning_labels_and_value(open_channel: Open, tmp_path: Path) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    take(channel, 5, "first")
    put_late(channel, 3600, b"later")
    with Observer([channel, tmp_path / 'mis"sing\n']) as observer:
        text = generate_latest(prometheus_registry(observer)).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {m.name: (m.text, m.kind.value) for m in METRICS if m.name in families} == {
        name: (family.documentation, family.type) for name, family in families.items()
    }
    assert {m.name for m in METRICS} - families.keys() == {
        m.name for m in METRICS if "_spool_" in m.name or "_worker_" in m.name
    }
    samples = {(s.name, *s.labels.values()): s.value for family in families.values() for s in family.samples}
    assert samples["spillable_channel_up", str(channel.path)] == 1
    assert samples["spillable_channel_up", str(tmp_path / 'mis"sing\n')] == 0
    assert samples["spillable_channel_put_events_total", str(channel.path)] == 20
    assert samples["spillable_group_lag_events", str(channel.path), "first"] == 15


@NEEDS_PROMTOOL
def test_promtool_finds_nothing_wrong_with_the_text(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    take(channel, 5)
    with Observer([channel]) as observer:
        text = generate_latest(prometheus_registry(observer))
    done = subprocess.run([str(PROMTOOL), "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_without_prometheus_client_the_error_names_the_extra(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with Observer([open_channel()]) as observer, pytest.raises(ImportError, match=r"spillable-stream\[prometheus\]"):
        prometheus_registry(observer)


def test_channels_whose_names_are_not_utf_8_have_series_of_their_own(tmp_path: Path) -> None:
    names = [os.fsdecode(os.fsencode(tmp_path) + name) for name in (b"/\xff", b"/\xfe", b"/good")]
    with Observer(names) as observer:
        text = generate_latest(prometheus_registry(observer)).decode()
    ups = [line for line in text.splitlines() if line.startswith("spillable_channel_up{")]
    assert len(set(ups)) == 3 and any("/good" in line for line in ups)
