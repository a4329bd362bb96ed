from __future__ import annotations

from dataclasses import replace

from spillable_stream.flow.configuration.model import Finding, Severity
from tests.support.flow_configurations import SMALL, agent, read


def test_a_finding_is_a_line_that_an_editor_can_open() -> None:
    finding = Finding("flume.conf", 7, Severity.ERROR, "no-type", "a1.sinks.k1", "it has no type")
    assert str(finding) == "flume.conf:7: error no-type a1.sinks.k1: it has no type"
    assert str(replace(finding, component="")) == "flume.conf:7: error no-type: it has no type"


def test_an_agent_is_valid_if_a_channel_and_a_source_or_sink_run() -> None:
    config = agent(SMALL)
    assert config.valid
    assert replace(config, sinks=()).valid and replace(config, sources=()).valid
    assert not replace(config, channels=()).valid
    assert not replace(config, sources=(), sinks=()).valid


def test_components_are_the_same_wherever_they_are_described() -> None:
    moved = agent("# a line more\n" + SMALL.replace("    ", ""))
    assert moved.sources == agent(SMALL).sources
    changed = agent(SMALL + "    a1.sources.r1.batchSize = 2\n")
    assert changed.sources != moved.sources and changed.channels == moved.channels


def test_errors_are_the_findings_of_that_severity() -> None:
    loaded = read(SMALL.replace("= seq", "= sqe") + "\n    a1.sinks.k1.size = 1")
    assert [f.code for f in loaded.errors] == ["unknown-type"]
    assert "unknown-property" in {f.code for f in loaded.findings}
