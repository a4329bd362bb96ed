"""A flow's division names all that its file says of where events go, and nothing that an upgrade could change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.loading import load
from spillable_stream.spark.sink.flow_division import flow_division, place_of
from tests.spark.sink.test_flow_plan import CONF

CHANNELS = "".join(
    f"a1.channels.{name}.type = file\na1.channels.{name}.checkpointDir = /data/{name}\n"
    for name in ("ok", "errors", "may", "dead")
)


def division(directory: Path, text: str) -> str:
    path = directory / "flume.conf"
    path.write_text(text)
    agent = load(path, name="a1").agents["a1"]
    (source,) = agent.sources
    described = {channel.name: channel for channel in agent.channels}
    names = dict.fromkeys([*source.channels, *([source.dead_letter] if source.dead_letter else [])])
    return flow_division("a1", source, [described[name] for name in names])


def test_the_division_of_a_flow_is_the_same_forever(tmp_path: Path) -> None:
    """Channels remember it."""
    times = "a1.channels.ok.ttl = 90\na1.channels.ok.ttlHeader = ttl\na1.channels.may.deliverAfter = 1h\n"
    assert division(tmp_path, CONF + CHANNELS + times) == "flow-9580b3ab"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("selector.mapping.ERROR = errors", "selector.mapping.ERROR = ok"),
        ("i1.regex = ^(\\\\w+)", "i1.regex = ^\\\\w+ (\\\\w+)"),
        ("serializers.s1.name = level", "serializers.s1.name = kind"),
        ("interceptors = i1 i2", "interceptors = i2 i1"),
        ("a1.sources.r1.deadLetter = dead\n", ""),
        ("deadLetter = dead", "deadLetter = may"),
        ("r1.channels = ok errors may", "r1.channels = ok errors may dead"),
        ("checkpointDir = /data/ok\n", "checkpointDir = /data/elsewhere\n"),
        ("checkpointDir = /data/may\n", "checkpointDir = /data/may\na1.channels.may.ttl = 1h\n"),
    ],
)
def test_what_says_where_events_go_makes_another_division(tmp_path: Path, before: str, after: str) -> None:
    text = CONF + CHANNELS
    assert text.count(before) == 1
    assert division(tmp_path, text) != division(tmp_path, text.replace(before, after))


def test_what_does_not_say_it_makes_none(tmp_path: Path) -> None:
    text = CONF + CHANNELS
    other = text + "a1.channels.ok.keep-alive = 9\na1.sinks = k1\na1.sinks.k1.type = logger\n"
    other += "a1.sinks.k1.channel = ok\n"
    assert division(tmp_path, text) == division(tmp_path, other)


def test_a_class_that_has_moved_in_an_upgrade_makes_no_other_division(tmp_path: Path) -> None:
    (tmp_path / "flume.conf").write_text(CONF + CHANNELS)
    agent = load(tmp_path / "flume.conf", name="a1").agents["a1"]
    (source,) = agent.sources

    def moved(component: ComponentConfig) -> ComponentConfig:
        return replace(component, implementation="elsewhere:Class")

    upgraded = replace(
        source, selector=moved(source.selector), interceptors=tuple([moved(one) for one in source.interceptors])
    )
    assert flow_division("a1", source, agent.channels) == flow_division("a1", upgraded, agent.channels)


def test_a_channel_is_at_an_absolute_path_or_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = CONF + CHANNELS.replace("/data/ok", "below/ok") + "a1.channels.may.path = s3://bucket/may\n"
    (tmp_path / "flume.conf").write_text(text)
    places = {c.name: place_of("a1", c) for c in load(tmp_path / "flume.conf", name="a1").agents["a1"].channels}
    assert places["ok"] == str(tmp_path / "below" / "ok")
    assert (places["errors"], places["may"]) == ("/data/errors", "s3://bucket/may")
