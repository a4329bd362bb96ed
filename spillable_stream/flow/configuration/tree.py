"""The keys of the files as a tree: agents, their lists, and the properties below each component."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.options import Kind, word_list
from spillable_stream.flow.configuration.properties import Entry
from spillable_stream.flow.configuration.registry import nearest

__all__ = ["LISTS", "RawAgent", "RawComponent", "agents_of", "component_of"]

LISTS = {
    "sources": Kind.SOURCE,
    "channels": Kind.CHANNEL,
    "sinks": Kind.SINK,
    "sinkgroups": Kind.SINK_GROUP,
    "configfilters": Kind.CONFIG_FILTER,
}
"""The lists of an agent, and what each has."""


@dataclass(slots=True)
class RawComponent:
    """A component as the files describe it.

    Args:
        kind: what it is to its agent.
        path: where it is: ``a1.sources.r1``.
        name: its name.
        named_at: the line that names it, where it has no properties of its own.
        entries: its properties, by the rest of the key.
    """

    kind: Kind
    path: str
    name: str
    named_at: Entry
    entries: dict[str, Entry] = field(default_factory=dict)
    _sorted: list[str] = field(default_factory=list, init=False, repr=False)
    _places: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def first(self) -> Entry:
        """The line of its type; where it has none, of the property that stands first."""
        return self.entries.get("type") or self.first_given

    @property
    def first_given(self) -> Entry:
        """The line of the property that stands first, be it the type or not."""
        return next(iter(self.entries.values()), self.named_at)

    def get(self, name: str) -> str:
        """Return the value of a property; an empty text if it has none."""
        return self.entries[name].value if name in self.entries else ""

    def below(self, prefix: str, kind: Kind, name: str) -> RawComponent:
        """Return what is described below a prefix as a component of its own."""
        if len(self._sorted) != len(self.entries):
            self._sorted = sorted(self.entries)
            self._places = {key: place for place, key in enumerate(self.entries)}
        start = f"{prefix}."
        first = last = bisect_left(self._sorted, start)
        while last < len(self._sorted) and self._sorted[last].startswith(start):
            last += 1
        keys = sorted(self._sorted[first:last], key=self._places.__getitem__)
        found = {key.removeprefix(start): self.entries[key] for key in keys}
        return RawComponent(kind, f"{self.path}.{prefix}", name, self.first, found)


@dataclass(slots=True)
class RawAgent:
    """An agent as the files describe it.

    Args:
        name: its name.
        first: the key that stands first.
        lists: the keys that list its components.
        components: what is described, by list and name.
    """

    name: str
    first: Entry
    lists: dict[str, Entry] = field(default_factory=dict)
    components: dict[str, dict[str, RawComponent]] = field(default_factory=lambda: {name: {} for name in LISTS})

    def names(self, list_name: str) -> dict[str, None]:
        """Return the names of a list, each once, in order."""
        return dict.fromkeys(word_list(self.lists[list_name].value)) if list_name in self.lists else {}

    def add(self, entry: Entry, key: str, findings: Findings) -> None:
        """Add one key, without the agent's name."""
        kind, _, rest = key.partition(".")
        if key in LISTS:
            self.lists[key] = entry
        elif kind in LISTS and all(rest.partition(".")):
            name, _, below = rest.partition(".")
            path = f"{self.name}.{kind}.{name}"
            component = self.components[kind].setdefault(name, RawComponent(LISTS[kind], path, name, entry))
            component.entries[below] = entry
        else:
            findings.add("invalid-key", entry, self.name, f"{entry.key} is ignored: {_advice(self.name, kind, rest)}")


def _advice(agent: str, kind: str, rest: str) -> str:
    if kind in LISTS:
        return f"a property has a component and a name, {agent}.{kind}.NAME.PROPERTY"
    meant = nearest(kind, LISTS)
    if meant:
        return f"write {'.'.join(filter(None, (agent, meant, rest)))}"
    return f"after the agent's name follows one of {', '.join(LISTS)}"


def component_of(key: str) -> str:
    """Return the component that a key is about, as ``a1.sources.r1``; the agent, or nothing, if it is about none."""
    parts = key.split(".")
    return "" if len(parts) < 2 else parts[0] if len(parts) < 4 else ".".join(parts[:3])


def agents_of(entries: list[Entry], findings: Findings, variables: Collection[str] = ()) -> dict[str, RawAgent]:
    """Return the agents that the entries describe, by name.

    Args:
        entries: what the files say, each key once.
        findings: gets what is wrong with a key.
        variables: keys that values refer to; they need not be about an agent.
    """
    agents: dict[str, RawAgent] = {}
    for entry in entries:
        name, _, key = entry.key.partition(".")
        if entry.key in variables and key.partition(".")[0] not in LISTS:
            continue
        if not entry.value:
            text = f"{entry.key} has no value, so the line is ignored: give it one, or take the line out"
            findings.add("empty-value", entry, component_of(entry.key), text)
        elif not (name and key):
            text = f"{entry.key!r} is ignored: a key begins with an agent's name, as in a1.sources"
            findings.add("no-agent", entry, "", text)
        else:
            agents.setdefault(name, RawAgent(name, entry)).add(entry, key, findings)
    return agents
