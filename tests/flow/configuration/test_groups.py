from __future__ import annotations

from spillable_stream.flow.configuration.model import Loaded
from tests.support.flow_configurations import read

THREE = """
    a1.sources = r1
    a1.channels = c1
    a1.sinks = k1 k2 k3
    a1.sources.r1.type = seq
    a1.sources.r1.channels = c1
    a1.channels.c1.type = memory
    a1.sinks.k1.type = null
    a1.sinks.k1.channel = c1
    a1.sinks.k2.type = null
    a1.sinks.k2.channel = c1
    a1.sinks.k3.type = null
    a1.sinks.k3.channel = c1
"""


def grouped(*lines: str) -> Loaded:
    return read(THREE + "".join(f"    a1.sinkgroups{line}\n" for line in lines))


def shape(loaded: Loaded) -> dict[str, tuple[str, ...]]:
    """Return the sinks that run alone, and those of each group."""
    config = loaded.agents["a1"]
    groups = {group.name: group.sinks for group in config.sink_groups}
    members = {name for sinks in groups.values() for name in sinks}
    return {"": tuple(s.name for s in config.sinks if s.name not in members), **groups}


def codes(loaded: Loaded) -> set[str]:
    return {f.code for f in loaded.findings}


def test_a_failover_group_has_priorities_and_the_rest_runs_alone() -> None:
    loaded = grouped(" = g", ".g.sinks = k2 k1", ".g.processor.type = failover", ".g.processor.priority.k1 = -5")
    assert shape(loaded) == {"": ("k3",), "g": ("k2", "k1")} and not codes(loaded)
    assert loaded.agents["a1"].sink_groups[0].processor.keywords == {"priority": {"k1": -5}}


def test_a_sink_stays_in_the_first_group_that_is_listed() -> None:
    loaded = grouped(
        " = g h", ".h.sinks = k1 k2 k3", ".h.processor.type = load_balance",
        ".g.sinks = k1", ".g.processor.type = failover",
    )  # fmt: skip
    assert shape(loaded) == {"": (), "g": ("k1",), "h": ("k2", "k3")}
    assert codes(loaded) == {"sink-in-two-groups", "group-of-one"}


def test_the_sinks_of_a_group_whose_processor_fails_do_not_run() -> None:
    loaded = grouped(" = g", ".g.sinks = k1 k2", ".g.processor.type = failoverr")
    assert shape(loaded) == {"": ("k3",)}
    assert {d.name: d.reason for d in loaded.agents["a1"].dropped}["k1"] == "its group g does not run"
    text = next(f.text for f in loaded.findings if f.code == "part-fails")
    line = next(f.line for f in loaded.findings if f.code == "unknown-type")
    assert text == f"its processor can't work (line {line} says why), so its sinks do not run: k1, k2"


def test_the_default_processor_serves_one_sink() -> None:
    loaded = grouped(" = g", ".g.sinks = k1 k2")
    assert shape(loaded) == {"": ("k3",)} and codes(loaded) == {"group-size"}
    loaded = grouped(" = g", ".g.sinks = k1", ".g.processor.backoff = true")
    assert shape(loaded) == {"": ("k2", "k3"), "g": ("k1",)}
    assert codes(loaded) == {"group-of-one", "unknown-property"}


def test_load_balancing_needs_two_sinks() -> None:
    loaded = grouped(" = g", ".g.sinks = k1 kk", ".g.processor.type = load_balance")
    assert shape(loaded) == {"": ("k2", "k3")} and codes(loaded) == {"group-sink", "group-size"}


def test_a_group_that_is_only_listed_or_only_described_leaves_its_sinks_alone() -> None:
    loaded = grouped(" = g h", ".g.processor.type = failover", ".i.sinks = k1")
    assert shape(loaded) == {"": ("k1", "k2", "k3")}
    assert codes(loaded) == {"missing-property", "not-described", "not-listed"}


def test_other_keys_of_a_group_are_found() -> None:
    loaded = grouped(" = g", ".g.sinks = k1 k2", ".g.processor.type = failover", ".g.processors.maxpenalty = 1")
    assert codes(loaded) == {"unknown-property"}
