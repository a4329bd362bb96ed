from __future__ import annotations

from tests.support.flow_configurations import found, read

TWO = """
    a1.sources = r1
    a1.channels = c1 c2
    a1.sinks = k1 k2
    a1.sources.r1.type = seq
    a1.sources.r1.channels = c1 c2
    a1.channels.c1.type = memory
    a1.channels.c2.type = memory
    a1.sinks.k1.type = null
    a1.sinks.k1.channel = c1
    a1.sinks.k2.type = null
    a1.sinks.k2.channel = c2
"""


def selected(*lines: str) -> tuple[dict[str, object] | None, list[str]]:
    loaded = read(TWO + "".join(f"    a1.sources.r1.selector.{line}\n" for line in lines))
    sources = loaded.agents["a1"].sources
    return (dict(sources[0].selector.keywords) if sources else None), found(loaded)


def test_events_are_replicated_by_default() -> None:
    source = read(TWO).agents["a1"].sources[0]
    assert (source.selector.type, source.selector.keywords) == ("replicating", {})
    assert source.channels == ("c1", "c2")


def test_channels_of_a_selector_are_lists_separated_by_any_blanks() -> None:
    keywords, findings = selected(
        "type = multiplexing", "header = h", "mapping.a.b = c1  c2", "optional.a.b = c2", "default = c2"
    )
    assert keywords == {
        "header": "h",
        "mapping": {"a.b": ("c1", "c2")},
        "optional": {"a.b": ("c2",)},
        "default": ("c2",),
    }
    assert findings == []


def test_a_channel_that_is_not_the_sources_drops_it() -> None:
    for line in ("default = c3", "mapping.b = c3", "optional.a = c3"):
        keywords, findings = selected("type = multiplexing", "mapping.a = c1", line)
        assert keywords is None
        assert "15 error selector-channel a1.sources.r1.selector" in findings
    keywords, _ = selected("optional = c9")
    assert keywords is None


def test_values_without_a_mapping_vanish_and_that_is_found() -> None:
    keywords, findings = selected("type = multiplexing", "mapping.a = c1")
    assert keywords == {"mapping": {"a": ("c1",)}}
    assert findings == ["13 warning no-default a1.sources.r1.selector"]


def test_a_selector_of_another_type_gets_its_properties() -> None:
    assert selected("type = load_balancing", "policy = RANDOM") == ({"policy": "random"}, [])
