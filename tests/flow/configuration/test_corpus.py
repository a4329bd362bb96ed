"""Small files with what people get wrong, each with its findings and what runs behind ``#=``."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.flow.configuration.findings import CODES, ENVIRONMENT
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.properties import decode
from spillable_stream.flow.configuration.reading import ConfigurationFile, read_agents
from spillable_stream.flow.graph import Graph
from tests.support.flow_configurations import found, running, world

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.conf"))
_EXPECTED = "#= "

# Findings that need more than a file on its own; where they are tested.
_ELSEWHERE = {
    "missing-agent": "test_reading",
    "filter-failed": "test_config_filters",
    "failover-channels": "test_advice",
    "listed-twice": "test_validation",
    "no-shell": "test_advice",
    "regex": "test_advice",
    **{code: "flow/test_environment" for code in ENVIRONMENT},
}


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_file_has_these_findings_and_these_components_run(path: Path) -> None:
    text, _ = decode(path.read_bytes())
    expected = [line.removeprefix(_EXPECTED) for line in text.splitlines() if line.startswith(_EXPECTED)]
    loaded = read_agents([ConfigurationFile(path.name, path.read_bytes())], world())
    assert [*found(loaded), *map(running, loaded.agents.values())] == expected
    assert {finding.file for finding in loaded.findings} <= {path.name}


def test_every_finding_occurs_in_the_corpus_or_has_a_test_of_its_own() -> None:
    words = {word for path in CORPUS for word in decode(path.read_bytes())[0].split()}
    assert CODES.keys() - words == _ELSEWHERE.keys()


FILES = [[line for line in decode(path.read_bytes())[0].splitlines() if line[:1] != "#"] for path in CORPUS]
LINES = sorted({line for file in FILES for line in file})
PATHS = {Kind.SOURCE: "sources", Kind.CHANNEL: "channels", Kind.SINK: "sinks", Kind.SINK_GROUP: "sinkgroups"}


@given(st.sampled_from(FILES), st.lists(st.sampled_from(LINES), max_size=5), st.randoms(use_true_random=False))
def test_any_lines_make_agents_whose_parts_fit_and_every_dropped_component_has_a_finding(
    file: list[str], more: list[str], chance: Random
) -> None:
    shuffled = [line if chance.random() < 0.9 else line[: chance.randrange(len(line) + 1)] for line in file + more]
    loaded = read_agents([ConfigurationFile("f", "\n".join(shuffled).encode())], world())
    Graph(loaded).svg()
    for agent in loaded.agents.values():
        channels = {channel.name for channel in agent.channels}
        sinks = {sink.name for sink in agent.sinks}
        assert all(set(s.channels) <= channels and s.channels for s in agent.sources)
        assert {sink.channel for sink in agent.sinks} <= channels
        members = [name for group in agent.sink_groups for name in group.sinks]
        assert set(members) <= sinks and len(set(members)) == len(members)
        used = {c for s in agent.sources for c in (*s.channels, s.dead_letter)}
        used |= {c for s in agent.sinks for c in (s.channel, s.dead_letter)}
        assert channels <= used
        about = {f.component for f in loaded.findings}
        for dropped in agent.dropped:
            path = f"{agent.name}.{PATHS[dropped.kind]}.{dropped.name}"
            assert dropped.reason
            is_unused = dropped.kind is Kind.CHANNEL and not agent.valid
            is_of_group = dropped.reason.startswith("its group")
            assert "," in dropped.name or is_unused or is_of_group or any(a.startswith(path) for a in about), path
    assert all(0 < f.line <= len(shuffled) or f.code == "missing-agent" for f in loaded.findings)
