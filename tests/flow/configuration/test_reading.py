from __future__ import annotations

import sys
from textwrap import dedent
from types import FrameType

import pytest

from spillable_stream.flow.configuration.reading import ConfigurationFile, read_agents
from tests.support.flow_configurations import SMALL, found, running, world

OTHER = SMALL.replace("a1", "a2")


def files(*texts: str) -> list[ConfigurationFile]:
    return [ConfigurationFile(f"file{i}", dedent(text).encode()) for i, text in enumerate(texts)]


def test_a_later_file_wins_also_in_references() -> None:
    first = SMALL + "\n    a1.sources.r1.batchSize = ${size.of.batch}\n    size.of.batch = 1\n"
    loaded = read_agents(files(first, "size.of.batch = 7\na1.sinks.k1.type = logger"), world())
    assert loaded.agents["a1"].sources[0].keywords == {"batch_size": 7}
    assert loaded.agents["a1"].sinks[0].type == "logger"
    assert loaded.findings == ()


def test_findings_name_the_file_that_has_the_line() -> None:
    loaded = read_agents(files(SMALL, "a1.sinks.k1.batchSize = x\n"), world())
    assert [(f.file, f.line, f.code) for f in loaded.findings][-1] == ("file1", 1, "bad-value")


def test_one_agent_is_looked_at_alone() -> None:
    broken = OTHER.replace("= seq", "= none")
    loaded = read_agents(files(SMALL + broken), world(), ["a1"])
    assert list(loaded.agents) == ["a1"] and found(loaded) == []
    loaded = read_agents(files(SMALL + broken), world())
    assert [running(a) for a in loaded.agents.values()] == ["a1: r1 | c1 | k1 | ", "a2:  | c1 | k1 | "]


@pytest.mark.parametrize(
    "agent", [SMALL, "a1.size = 1\n", "a1.sources = ${a1.size}\n"], ids=["whole", "none", "refers"]
)
def test_the_work_grows_with_the_agents_and_not_with_their_square(agent: str) -> None:
    def calls(count: int) -> int:
        made = [0]

        def called(frame: FrameType, event: str, argument: object) -> None:
            made[0] += event.endswith("call")

        agents = "".join(agent.replace("a1", f"a{i}") for i in range(count))
        before = sys.getprofile()
        sys.setprofile(called)
        try:
            assert len(read_agents(files(agents), world()).agents) == count
        finally:
            sys.setprofile(before)
        return made[0]

    calls(1)  # what is done once
    assert calls(400) < 2.2 * calls(200)


def test_an_agent_that_is_not_there_is_an_error() -> None:
    loaded = read_agents(files(SMALL), world(), ["a3"])
    assert not loaded.agents
    assert [str(f) for f in loaded.findings] == [
        "file0: error missing-agent a3: there is no agent a3: the file describes a1"
    ]


def test_a_file_without_an_agent_is_an_error() -> None:
    assert found(read_agents(files("# nothing\n"), world())) == ["0 error missing-agent"]
