"""The topology of agents as a drawing: text, DOT for Graphviz, Mermaid for Markdown, and a picture in notebooks.

A component that does not run is crossed out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple

from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.configuration.model import AgentConfig, Loaded, SourceConfig
from spillable_stream.flow.configuration.options import Kind

__all__ = ["Edge", "Graph", "Node"]

_WIDTH, _HEIGHT, _COLUMN, _ROW, _MARGIN = 220, 44, 320, 64, 20


class Node(NamedTuple):
    """A component in a drawing.

    Args:
        kind: source, channel, sink or sink group.
        name: its name.
        label: what it is: its type, and what happens in it.
        reason: why it does not run; empty if it does.
    """

    kind: Kind
    name: str
    label: str
    reason: str = ""


class Edge(NamedTuple):
    """Events on their way from one component to another.

    Args:
        start: the kind and name of the first.
        end: those of the second.
        label: which events; empty for all.
        optional: whether the second may miss events.
        runs: whether both run.
    """

    start: tuple[Kind, str]
    end: tuple[Kind, str]
    label: str = ""
    optional: bool = False
    runs: bool = True


class Graph:
    """The drawing of the agents of a configuration. A notebook shows it as a picture.

    Args:
        loaded: what `load` returned.
    """

    @checked
    def __init__(self, loaded: Loaded) -> None:
        self.agents: dict[str, tuple[list[Node], list[Edge]]] = {
            name: (list(_nodes(agent)), list(_edges(agent))) for name, agent in loaded.agents.items()
        }

    def text(self) -> str:
        """Return the drawing as text: each source with its channels, and each channel with its sinks."""
        lines: list[str] = []
        for name, (nodes, edges) in self.agents.items():
            lines.append(name)
            for node in nodes:
                lines.append(f"  {'x ' if node.reason else ''}{node.kind} {node.name}: {node.reason or node.label}")
                lines += [f"    {_arrow(edge)} {edge.end[1]}{_after(edge)}" for edge in edges if _leaves(edge, node)]
        return "\n".join(lines)

    def dot(self) -> str:
        """Return the drawing in Graphviz's language."""
        lines = ["digraph flow {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
        for i, (name, (nodes, edges)) in enumerate(self.agents.items()):
            lines += [f"  subgraph cluster_{i} {{", f"    label={_quoted(name)};"]
            for node in nodes:
                if node.reason:
                    html = f"<<s>{escape(node.name)}</s><br/>{escape(node.reason)}>"
                    lines.append(
                        f"    {_quoted(_id(i, node))} [label={html}, style=dashed, color=gray, fontcolor=gray];"
                    )
                else:
                    style = ", shape=cylinder" if node.kind is Kind.CHANNEL else ""
                    label = _quoted(f"{node.name}\n{node.label}")
                    lines.append(f"    {_quoted(_id(i, node))} [label={label}{style}];")
            for edge in edges:
                style = "dashed" if edge.optional or not edge.runs else "solid"
                color = "" if edge.runs else ", color=gray"
                ends = f"{_quoted(_end_id(i, edge.start))} -> {_quoted(_end_id(i, edge.end))}"
                lines.append(f"    {ends} [label={_quoted(edge.label)}, style={style}{color}];")
            lines.append("  }")
        return "\n".join([*lines, "}"])

    def mermaid(self) -> str:
        """Return the drawing in Mermaid's language, which Markdown viewers draw in a block ``mermaid``."""
        lines = ["flowchart LR"]
        dropped: list[str] = []
        for i, (name, (nodes, edges)) in enumerate(self.agents.items()):
            ids = {(node.kind, node.name): f"a{i}n{j}" for j, node in enumerate(nodes)}
            lines.append(f'  subgraph a{i}["{_mermaid(name)}"]')
            for node in nodes:
                key = ids[node.kind, node.name]
                opening, closing = ("[(", ")]") if node.kind is Kind.CHANNEL else ("[", "]")
                shown = f"<s>{_mermaid(node.name)}</s>" if node.reason else _mermaid(node.name)
                lines.append(f'    {key}{opening}"{shown}<br/>{_mermaid(node.reason or node.label)}"{closing}')
                dropped += [key] if node.reason else []
            for edge in edges:
                arrow = "-.->" if edge.optional or not edge.runs else "-->"
                label = f'|"{_mermaid(edge.label)}"|' if edge.label else ""
                lines.append(f"    {ids[edge.start]} {arrow}{label} {ids[edge.end]}")
            lines.append("  end")
        if dropped:
            lines += ["  classDef dropped stroke-dasharray:4,color:gray", f"  class {','.join(dropped)} dropped"]
        return "\n".join(lines)

    def svg(self) -> str:
        """Return the drawing as a picture, sources to the left, then channels, groups and sinks."""
        parts: list[str] = []
        top = _MARGIN
        for name, (nodes, edges) in self.agents.items():
            parts.append(f'<text x="{_MARGIN}" y="{top}" font-weight="bold">{escape(name)}</text>')
            places = dict(_places(nodes, top + _MARGIN))
            parts += [_svg_edge(edge, places) for edge in edges]
            parts += [_svg_node(node, *places[node.kind, node.name]) for node in nodes]
            top = max([y + _ROW + _MARGIN for _, y in places.values()], default=top + _ROW)
        width = len(_COLUMNS) * _COLUMN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}" '
            f'font-family="sans-serif" font-size="12" fill="currentColor">{_ARROW_HEAD}{"".join(parts)}</svg>'
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.svg()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return the drawing as notebooks show it."""
        return {"text/html": self.svg(), "text/plain": self.text(), "text/vnd.mermaid": self.mermaid()}


def _nodes(agent: AgentConfig) -> Iterator[Node]:
    for source in agent.sources:
        steps = [source.type, *(i.type for i in source.interceptors)]
        selector = source.selector.type
        yield Node(Kind.SOURCE, source.name, " > ".join([*steps, selector] if len(source.channels) > 1 else steps))
    yield from _dropped(agent, Kind.SOURCE)
    for channel in agent.channels:
        yield Node(Kind.CHANNEL, channel.name, channel.type)
    yield from _dropped(agent, Kind.CHANNEL)
    for group in agent.sink_groups:
        yield Node(Kind.SINK_GROUP, group.name, group.processor.type)
    yield from _dropped(agent, Kind.SINK_GROUP)
    for sink in agent.sinks:
        yield Node(Kind.SINK, sink.name, sink.type)
    yield from _dropped(agent, Kind.SINK)


def _dropped(agent: AgentConfig, kind: Kind) -> Iterator[Node]:
    for component in agent.dropped:
        if component.kind is kind:
            yield Node(kind, component.name, component.type, component.reason)


def _edges(agent: AgentConfig) -> Iterator[Edge]:
    described = {(node.kind, node.name) for node in _nodes(agent)}
    for source in agent.sources:
        yield from _routes(source)
    group_of = {sink: group.name for group in agent.sink_groups for sink in group.sinks}
    seen: set[tuple[str, str]] = set()
    for sink in agent.sinks:
        end = (Kind.SINK, sink.name)
        if sink.name in group_of:
            group = (Kind.SINK_GROUP, group_of[sink.name])
            if (sink.channel, group[1]) not in seen:
                yield Edge((Kind.CHANNEL, sink.channel), group)
            seen.add((sink.channel, group[1]))
            yield Edge(group, end)
        else:
            yield Edge((Kind.CHANNEL, sink.channel), end)
        if sink.dead_letter:
            yield Edge(end, (Kind.CHANNEL, sink.dead_letter), "dead letters", optional=True)
    for component in agent.dropped:
        for channel in component.channels:
            ends = [(component.kind, component.name), (Kind.CHANNEL, channel)]
            if component.kind is Kind.SINK:
                ends.reverse()
            if set(ends) <= described:
                yield Edge(ends[0], ends[1], runs=False)


def _routes(source: SourceConfig) -> Iterator[Edge]:
    """Yield the ways of a source's events, those that a selector never takes left out."""
    keywords = source.selector.keywords
    start = (Kind.SOURCE, source.name)
    labels: dict[tuple[str, bool], list[str]] = {}
    if source.selector.type == "multiplexing":
        header = str(keywords.get("header", "flume.selector.header"))
        for optional, key in (False, "mapping"), (True, "optional"):
            mapping = keywords.get(key, {})
            assert isinstance(mapping, dict)
            for value, channels in mapping.items():
                for channel in channels:
                    labels.setdefault((channel, optional), []).append(f"{header}={value}")
        for channel in _names(keywords.get("default", ())):
            labels.setdefault((channel, False), []).append("default")
    else:
        optional_channels = _names(keywords.get("optional", ()))
        for channel in source.channels:
            labels[channel, channel in optional_channels] = []
    for (channel, optional), found in labels.items():
        yield Edge(start, (Kind.CHANNEL, channel), ", ".join(found), optional)
    if source.dead_letter:
        yield Edge(start, (Kind.CHANNEL, source.dead_letter), "dead letters", optional=True)


def _names(value: object) -> Iterable[str]:
    return value if isinstance(value, tuple) else ()


def _leaves(edge: Edge, node: Node) -> bool:
    return edge.start == (node.kind, node.name)


def _arrow(edge: Edge) -> str:
    return "-/->" if not edge.runs else "..>" if edge.optional else "-->"


def _after(edge: Edge) -> str:
    words = [edge.label, "optional" if edge.optional and edge.label != "dead letters" else ""]
    return "".join(f"  ({word})" for word in words if word)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _id(agent: int, node: Node) -> str:
    return _end_id(agent, (node.kind, node.name))


def _end_id(agent: int, end: tuple[Kind, str]) -> str:
    return f"{agent}.{end[0]}.{end[1]}"


def _mermaid(text: str) -> str:
    return "".join(c if c.isalnum() or c in " .,:;=_-/>()" else f"#{ord(c)};" for c in text)


_COLUMNS = (Kind.SOURCE, Kind.CHANNEL, Kind.SINK_GROUP, Kind.SINK)
_ARROW_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker></defs>'
)


def _places(nodes: list[Node], top: int) -> Iterator[tuple[tuple[Kind, str], tuple[int, int]]]:
    for column, kind in enumerate(_COLUMNS):
        for row, node in enumerate(n for n in nodes if n.kind is kind):
            yield (kind, node.name), (_MARGIN + column * _COLUMN, top + row * _ROW)


def _svg_node(node: Node, x: int, y: int) -> str:
    dash = ' stroke-dasharray="4"' if node.reason else ""
    strike = ' text-decoration="line-through" opacity="0.6"' if node.reason else ""
    below = node.reason or node.label
    shown = below if len(below) <= 34 else below[:33] + "…"
    return (
        f"<g><title>{escape(f'{node.kind} {node.name}: {below}')}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="none" stroke="currentColor"{dash}/>'
        f'<text x="{x + 10}" y="{y + 18}" font-weight="bold"{strike}>{escape(node.name)}</text>'
        f'<text x="{x + 10}" y="{y + 34}">{escape(shown)}</text></g>'
    )


def _svg_edge(edge: Edge, places: dict[tuple[Kind, str], tuple[int, int]]) -> str:
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    backwards = x2 <= x1
    x1, x2 = (x1, x2 + _WIDTH) if backwards else (x1 + _WIDTH, x2)
    y1, y2 = y1 + _HEIGHT // 2, y2 + _HEIGHT // 2
    dash = ' stroke-dasharray="4"' if edge.optional or not edge.runs else ""
    opacity = "" if edge.runs else ' opacity="0.5"'
    line = (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="currentColor" marker-end="url(#head)"{dash}{opacity}/>'
    )
    label = f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 4}" text-anchor="middle">{escape(edge.label)}</text>'
    return line + (label if edge.label else "")
