from __future__ import annotations

from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.properties import Entry
from spillable_stream.flow.configuration.tree import RawAgent, agents_of, component_of


def entries(text: str) -> list[Entry]:
    pairs = [line.split(" = ") for line in text.splitlines()]
    return [Entry(key, value, "f", i + 1, value) for i, (key, value) in enumerate(pairs)]


def tree(text: str, *variables: str) -> tuple[dict[str, RawAgent], list[str]]:
    findings = Findings()
    agents = agents_of(entries(text), findings, variables)
    return agents, [f"{f.line} {f.code}" for f in findings.sorted(["f"])]


def test_keys_are_lists_of_an_agent_and_properties_of_its_components() -> None:
    agents, found = tree("a.sources = r1  r2 r1\na.sources.r1.x.y = 1\nb.sinks.k.type = t")
    assert not found and list(agents) == ["a", "b"]
    assert list(agents["a"].names("sources")) == ["r1", "r2"] and not agents["a"].names("sinks")
    r1 = agents["a"].components["sources"]["r1"]
    assert (r1.kind, r1.path, r1.get("x.y"), r1.get("z")) == (Kind.SOURCE, "a.sources.r1", "1", "")
    assert agents["b"].components["sinks"]["k"].get("type") == "t"


def test_a_component_is_where_its_type_is_or_its_first_property() -> None:
    agents, _ = tree("a.sources.r.x = 1\na.sources.r.type = t\na.sources.s.x = 1")
    assert [agents["a"].components["sources"][n].first.line for n in ("r", "s")] == [2, 3]


def test_what_is_below_a_prefix_is_a_component_of_its_own() -> None:
    agents, _ = tree("a.sources.r.type = t\na.sources.r.interceptors.i.type = host")
    source = agents["a"].components["sources"]["r"]
    inner = source.below("interceptors.i", Kind.INTERCEPTOR, "i")
    assert (inner.path, list(inner.entries), inner.first.line) == ("a.sources.r.interceptors.i", ["type"], 2)
    assert source.below("selector", Kind.SELECTOR, "selector").first.line == 1


def test_other_keys_are_found_and_ignored() -> None:
    text = "a.source = r\na.sources.r = x\na.sources..x = 1\na.sources.r. = 1\nsources = r\n.x = 1\na. = 1"
    agents, found = tree(text)
    codes = ["invalid-key"] * 4 + ["no-agent"] * 3
    assert found == [f"{i + 1} {code}" for i, code in enumerate(codes)]
    assert not any(agents["a"].components.values())


def test_keys_that_values_refer_to_need_not_be_about_an_agent() -> None:
    text = "base = /x\nbase.dir = /y\na.sources.r.type = t"
    agents, found = tree(text, "base", "base.dir", "a.sources.r.type")
    assert list(agents) == ["a"] and not found
    assert agents["a"].components["sources"]["r"].get("type") == "t"


def test_an_empty_value_is_about_its_component() -> None:
    findings = Findings()
    agents_of([Entry("a.sources.r.type", "", "f", 1, "")], findings)
    assert [(f.code, f.component) for f in findings.sorted(["f"])] == [("empty-value", "a.sources.r")]


def test_a_key_is_about_a_component_an_agent_or_nothing() -> None:
    keys = ("a.sources.r.x.y", "a.sources.r", "a.sources", "a")
    assert [component_of(key) for key in keys] == ["a.sources.r", "a", "a", ""]
