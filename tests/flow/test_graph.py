from __future__ import annotations

from xml.etree import ElementTree

from spillable_stream import flow
from tests.support.flow_configurations import read

TEXT = """
    a1.sources = r1 r2
    a1.channels = c1 c2 dl
    a1.sinks = k1 k2 k3 k4
    a1.sinkgroups = g1
    a1.sources.r1.type = seq
    a1.sources.r1.channels = c1 c2
    a1.sources.r1.deadLetter = dl
    a1.sources.r1.interceptors = i1
    a1.sources.r1.interceptors.i1.type = host
    a1.sources.r1.selector.type = multiplexing
    a1.sources.r1.selector.header = level
    a1.sources.r1.selector.mapping.<ERROR> = c1
    a1.sources.r1.selector.mapping.FATAL = c1
    a1.sources.r1.selector.optional.WARN = c1
    a1.sources.r1.selector.default = c2
    a1.sources.r2.type = twitter
    a1.sources.r2.channels = c1
    a1.channels.c1.type = file
    a1.channels.c2.type = memory
    a1.channels.dl.type = file
    a1.sinks.k1.type = null
    a1.sinks.k1.channel = c1
    a1.sinks.k2.type = null
    a1.sinks.k2.channel = c1
    a1.sinks.k3.type = logger
    a1.sinks.k3.channel = c2
    a1.sinks.k4.type = irc
    a1.sinks.k4.channel = c2
    a1.sinkgroups.g1.sinks = k1 k2
    a1.sinkgroups.g1.processor.type = failover
"""
GRAPH = flow.Graph(read(TEXT))


def test_text_has_each_source_with_its_channels_and_each_channel_with_its_sinks() -> None:
    assert str(GRAPH).splitlines() == [
        "a1",
        "  source r1: seq > host > multiplexing",
        "    --> c1  (level=<ERROR>, level=FATAL)",
        "    ..> c1  (level=WARN)  (optional)",
        "    --> c2  (default)",
        "    ..> dl  (dead letters)",
        "  x source r2: the type twitter does not run here: the interface of Twitter that it used has been shut down",
        "    -/-> c1",
        "  channel c1: file",
        "    --> g1",
        "  channel c2: memory",
        "    --> k3",
        "    -/-> k4",
        "  channel dl: file",
        "  sinkgroup g1: failover",
        "    --> k1",
        "    --> k2",
        "  sink k1: null",
        "  sink k2: null",
        "  sink k3: logger",
        "  x sink k4: the type irc does not run here: write a sink of your own in Python",
    ]


def test_dot_escapes_and_crosses_out() -> None:
    dot = GRAPH.dot()
    assert dot.startswith("digraph flow {") and dot.endswith("}")
    assert r'"0.source.r1" [label="r1\nseq > host > multiplexing"];' in dot
    assert '"0.channel.c1" [label="c1\\nfile", shape=cylinder];' in dot
    assert '"0.source.r1" -> "0.channel.c1" [label="level=<ERROR>, level=FATAL", style=solid];' in dot
    assert '"0.source.r1" -> "0.channel.c1" [label="level=WARN", style=dashed];' in dot
    assert "[label=<<s>k4</s><br/>the type irc" in dot
    assert '"0.channel.c2" -> "0.sink.k4" [label="", style=dashed, color=gray];' in dot


def test_mermaid_escapes_and_crosses_out() -> None:
    lines = GRAPH.mermaid().splitlines()
    assert lines[:2] == ["flowchart LR", '  subgraph a0["a1"]']
    assert '    a0n0["r1<br/>seq > host > multiplexing"]' in lines
    assert '    a0n0 -->|"level=#60;ERROR>, level=FATAL"| a0n2' in lines
    assert '    a0n0 -.->|"level=WARN"| a0n2' in lines
    assert any(line.startswith('    a0n1["<s>r2</s><br/>') for line in lines)
    assert lines[-1] == "  class a0n1,a0n9 dropped"


def test_a_picture_is_well_formed_and_names_everything() -> None:
    root = ElementTree.fromstring(GRAPH.svg())
    texts = {"".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")}
    assert {"a1", "r1", "r2", "c1", "c2", "dl", "g1", "k1", "k2", "k3", "k4", "dead letters"} <= texts
    struck = [e.text for e in root.iter() if e.get("text-decoration") == "line-through"]
    assert struck == ["r2", "k4"]


def test_a_notebook_shows_the_picture() -> None:
    bundle = GRAPH._repr_mimebundle_()
    assert bundle["text/html"] == GRAPH._repr_html_() == GRAPH.svg()
    assert bundle["text/plain"] == GRAPH.text() and bundle["text/vnd.mermaid"] == GRAPH.mermaid()


def test_several_agents_are_drawn_below_each_other() -> None:
    text = TEXT + TEXT.replace("a1", "b2")
    graph = flow.Graph(read(text))
    assert [line for line in graph.text().splitlines() if not line.startswith(" ")] == ["a1", "b2"]
    assert "subgraph cluster_1" in graph.dot() and 'subgraph a1["b2"]' in graph.mermaid()
    heights = [int(ElementTree.fromstring(g.svg()).attrib["height"]) for g in (GRAPH, graph)]
    assert heights[1] > heights[0]
