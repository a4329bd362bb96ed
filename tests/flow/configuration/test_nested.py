from __future__ import annotations

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.model import ComponentConfig
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.reading import ConfigurationFile, World, read_agents
from tests.support.flow_configurations import NoClasses, agent, found, read

HEAD = """
    a1.sources = r1
    a1.channels = c1
    a1.sinks = k1
    a1.channels.c1.type = memory
    a1.sinks.k1.type = null
    a1.sinks.k1.channel = c1
    a1.sources.r1.channels = c1
"""
TAILDIR = (
    HEAD
    + """
    a1.sources.r1.type = taildir
    a1.sources.r1.filegroups = b a b
    a1.sources.r1.filegroups.a = /a
    a1.sources.r1.filegroups.b = /b
"""
)
EXTRACTOR = (
    HEAD
    + """
    a1.sources.r1.type = seq
    a1.sources.r1.interceptors = i1
    a1.sources.r1.interceptors.i1.type = regex_extractor
    a1.sources.r1.interceptors.i1.regex = (x)(y)
    a1.sources.r1.interceptors.i1.serializers = s1 s2
    a1.sources.r1.interceptors.i1.serializers.s1.name = x
    a1.sources.r1.interceptors.i1.serializers.s2.name = timestamp
    a1.sources.r1.interceptors.i1.serializers.s2.type = millis
    a1.sources.r1.interceptors.i1.serializers.s2.pattern = yyyy
"""
)


def serializers(text: str) -> list[ComponentConfig]:
    made = agent(text).sources[0].interceptors[0].keywords["serializers"]
    assert isinstance(made, tuple)
    return list(made)


def test_groups_of_files_are_those_listed_in_their_order() -> None:
    source = agent(TAILDIR).sources[0]
    assert source.keywords == {"filegroups": {"b": "/b", "a": "/a"}}
    assert list(source.keywords["filegroups"]) == ["b", "a"]  # type: ignore[call-overload]


def test_a_group_that_is_only_listed_or_only_described_is_found() -> None:
    loaded = read(TAILDIR.replace("= b a b", "= b c"))
    assert loaded.agents["a1"].sources[0].keywords == {"filegroups": {"b": "/b"}}
    assert {(f.code, f.severity) for f in loaded.findings} == {("not-described", "error"), ("not-listed", "warning")}


def test_the_serializers_of_an_extractor_are_components_in_their_order() -> None:
    first, second = serializers(EXTRACTOR)
    assert (first.type, first.keywords) == ("DEFAULT", {"name": "x"})
    assert (second.type, second.keywords) == ("millis", {"name": "timestamp", "pattern": "yyyy"})
    assert serializers(EXTRACTOR.replace("= s1 s2", "= s2 s1")) == [second, first]


def test_a_serializer_that_is_not_described_or_needs_more_drops_the_source() -> None:
    for broken, code in (
        (EXTRACTOR.replace("= s1 s2", "= s1 s3"), "not-described"),
        (EXTRACTOR.replace("s2.pattern", "s2.patterns"), "missing-property"),
        (EXTRACTOR.replace("= millis", "= milis"), "unknown-type"),
    ):
        loaded = read(broken)
        assert not loaded.agents["a1"].sources
        assert f" error {code} a1.sources.r1.interceptors.i1" in " ".join(found(loaded))


def test_a_component_that_cannot_be_built_is_dropped_with_its_reason() -> None:
    class Picky(NoClasses):
        def check(self, component: ComponentConfig) -> None:
            if component.kind is Kind.INTERCEPTOR:
                raise OptionError("the pattern has no groups")

    text = "\n".join(line.strip() for line in EXTRACTOR.splitlines())
    loaded = read_agents([ConfigurationFile("f", text.encode())], World(Picky()))
    assert not loaded.agents["a1"].sources
    texts = {f.code: f.text for f in loaded.errors}
    assert texts["bad-value"] == "the pattern has no groups; it does not run"
    assert texts["part-fails"] == "its interceptor i1 can't work (line 12 says why), so the source does not run"
    (reason,) = (d.reason for d in loaded.agents["a1"].dropped if d.kind is Kind.SOURCE)
    assert reason == "its interceptor i1 can't work: the pattern has no groups; it does not run"
