from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.flow.changes import changes, sink_units
from spillable_stream.flow.configuration.model import AgentConfig
from spillable_stream.flow.loading import load

BASE = """
a.sources = r
a.channels = c d
a.sinks = k l m
a.sinkgroups = g
a.sinkgroups.g.sinks = k l
a.sinkgroups.g.processor.type = failover
a.sources.r.type = seq
a.sources.r.channels = c
a.channels.c.type = memory
a.channels.d.type = memory
a.sinks.k.type = null
a.sinks.k.channel = c
a.sinks.l.type = null
a.sinks.l.channel = c
a.sinks.m.type = null
a.sinks.m.channel = d
"""


@pytest.fixture
def config(tmp_path: Path) -> object:
    def config(text: str) -> AgentConfig:
        (tmp_path / "f").write_text(text)
        return load(tmp_path / "f").agents["a"]

    return config


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("", (set(), set(), set())),
        ("a.sources.r.batchSize = 2", ({"r"}, set(), set())),
        ("a.sinks.m.batchSize = 2", (set(), {"m"}, set())),
        ("a.sinks.l.batchSize = 2", (set(), {"g"}, set())),
        ("a.sinkgroups.g.processor.maxpenalty = 7", (set(), {"g"}, set())),
        ("a.channels.d.capacity = 700", (set(), {"m"}, {"d"})),
        ("a.channels.c.capacity = 700", ({"r"}, {"g"}, {"c"})),
        ("a.sources = r n\na.sources.n.type = seq\na.sources.n.channels = d", ({"n"}, set(), set())),
        ("a.sinkgroups =", (set(), {"g", "k", "l"}, set())),
        ("a.sinks = k l", (set(), {"m"}, {"d"})),
        ("a.sources.r.channels = c d", ({"r"}, set(), set())),
        ("a.sources.r.channels = c d\na.sources.r.selector.optional = d", ({"r"}, {"m"}, {"d"})),
    ],
)
def test_only_what_differs_changes_with_what_uses_it(
    config: object, change: str, expected: tuple[set[str], ...]
) -> None:
    old, new = config(BASE), config("# a comment moves the lines\n" + BASE + change)  # type: ignore[operator]
    assert changes(old, new) == expected
    assert bool(changes(old, new)) == any(expected)


def test_a_group_is_one_unit(config: object) -> None:
    units = sink_units(config(BASE))  # type: ignore[operator]
    assert {name: [s.name for s in unit.sinks] for name, unit in units.items()} == {"g": ["k", "l"], "m": ["m"]}
