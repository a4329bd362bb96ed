from __future__ import annotations

import sys
from collections.abc import Callable
from textwrap import dedent
from types import FrameType

import pytest

from spillable_stream.flow.configuration.reading import ConfigurationFile, read_agents
from tests.support.flow_configurations import SMALL, found, running, world
from tests.support.opcodes import opcodes

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

    calls(1)  # what is done but once
    least, half = calls(1), calls(60)
    assert calls(120) - half < 1.05 * (half - least)


HEAD = "a1.channels = c1\na1.channels.c1.type = memory\n"
SHAPES: dict[str, Callable[[int], str]] = {
    "sources at one port": lambda count: (
        HEAD
        + f"a1.sources = {' '.join(f's{i}' for i in range(count))}\n"
        + "".join(
            f"a1.sources.s{i}.type = netcat\na1.sources.s{i}.bind = h{i}\na1.sources.s{i}.port = 1\n"
            f"a1.sources.s{i}.channels = c1\n"
            for i in range(count)
        )
    ),
    "sources that are not listed": lambda count: (
        dedent(SMALL) + "".join(f"a1.sources.x{i}.a = 1\n" for i in range(count))
    ),
    "sources that are not described": lambda count: (
        dedent(SMALL)
        + f"a1.sources = r1 {' '.join(f'x{i}' for i in range(count))}\n"
        + "".join(f"a1.sources.y{i}.type = seq\n" for i in range(count))
    ),
    "interceptors": lambda count: (
        dedent(SMALL)
        + f"a1.sources.r1.interceptors = {' '.join(f'i{i}' for i in range(count))}\n"
        + "".join(f"a1.sources.r1.interceptors.i{i}.type = timestamp\n" for i in range(count))
    ),
    "groups of files": lambda count: (
        dedent(SMALL).replace("seq", "taildir")
        + "a1.sources.r1.filegroups = g0\n"
        + "".join(f"a1.sources.r1.filegroups.g{i} = /d/.*\n" for i in range(count))
    ),
    "groups of sinks": lambda count: dedent(SMALL) + "".join(f"a1.sinkgroups.g{i}.sinks = k1\n" for i in range(count)),
    "sinks to channels": lambda count: (
        f"a1.channels = {' '.join(f'c{i}' for i in range(count))}\n"
        f"a1.sinks = {' '.join(f'k{i}' for i in range(count))}\n"
        + "".join(
            f"a1.channels.c{i}.type = file\na1.channels.c{i}.path = /d/{i}\na1.sinks.k{i}.type = channel\n"
            f"a1.sinks.k{i}.channel = c{i}\na1.sinks.k{i}.path = /d/to/{i}\n"
            for i in range(count)
        )
    ),
    "references in references": lambda count: (
        dedent(SMALL) + "".join(f"v{i} = ${{w${{x{i}}}}}\n" for i in range(count))
    ),
    "a value of references": lambda count: dedent(SMALL) + "v = " + "${w}" * 20 * count + "\n",
    "a value of braces": lambda count: dedent(SMALL) + "v = " + "${" * 20 * count + "\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_lines_of_one_agent_and_not_with_their_square(shape: str) -> None:
    def work(count: int) -> int:
        text = SHAPES[shape](count)
        return opcodes(lambda: read_agents(files(text), world()), within="configuration")

    work(1)  # what is done but once
    count = 250 if shape == "sources that are not described" else 60  # each is compared to 200 names at most
    least, half = work(1), work(count)
    assert work(2 * count) - half < 1.05 * (half - least)


def test_an_agent_that_is_not_there_is_an_error() -> None:
    loaded = read_agents(files(SMALL), world(), ["a3"])
    assert not loaded.agents
    assert [str(f) for f in loaded.findings] == [
        "file0: error missing-agent a3: there is no agent a3: the file describes a1"
    ]


def test_a_file_without_an_agent_is_an_error() -> None:
    assert found(read_agents(files("# nothing\n"), world())) == ["0 error missing-agent"]
