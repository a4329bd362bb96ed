"""From the bytes of configuration files to agents and findings: all steps in their order, without input or output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spillable_stream.flow.configuration.advice import advise
from spillable_stream.flow.configuration.components import FindClass, Refusal, configure
from spillable_stream.flow.configuration.config_filters import ConfigFilter, FilterError, Run, apply_filters
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import AgentConfig, Loaded
from spillable_stream.flow.configuration.properties import Entry, Problem, read_properties
from spillable_stream.flow.configuration.substitution import Lookups, substitute, unresolved
from spillable_stream.flow.configuration.tree import RawAgent, agents_of
from spillable_stream.flow.configuration.validation import validate

__all__ = ["ConfigurationFile", "World", "read_agents"]


class ConfigurationFile(NamedTuple):
    """A file: its name, as it was given, and its bytes."""

    name: str
    content: bytes


def _no_command(command: list[str]) -> str:
    raise FilterError("commands are not run here")


def _no_class(kind: object, name: str) -> str:
    raise AssertionError(name)


@dataclass(frozen=True, slots=True)
class World:
    """What a configuration may ask of the world around it.

    Args:
        lookups: what references in values are answered from.
        run: runs the command of a config filter.
        find_class: finds the class of a type that is not Flume's.
    """

    lookups: Lookups = field(default_factory=Lookups)
    run: Run = _no_command
    find_class: FindClass = _no_class


def read_agents(files: Sequence[ConfigurationFile], world: World, names: Iterable[str] = ()) -> Loaded:
    """Return what some files say together; a later file wins.

    Args:
        files: the files.
        world: what they may ask of the world around them.
        names: the agents to look at; all of the files' by default. Findings about others are left out.
    """
    findings = Findings()
    entries = _merged(files, findings)
    entries, problems = substitute(entries, world.lookups)
    _add(findings, problems)
    agents: dict[str, AgentConfig] = {}
    filtered = _filtered(entries, world, findings, tuple(names))
    raw = agents_of(filtered, findings)
    _add(findings, unresolved(filtered))
    for name, agent in raw.items():
        if names and name not in names:
            continue
        others = [n for n in raw if n != name]
        agents[name] = validate(agent, findings, world.find_class, others)
        advise(agent, agents[name], findings)
    found = findings.sorted([file.name for file in files])
    if names:
        ours = tuple(names)
        found = tuple(f for f in found if not f.component or f.component.partition(".")[0] in ours)
    return Loaded(agents, found)


def _merged(files: Sequence[ConfigurationFile], findings: Findings) -> list[Entry]:
    """Return each key once, where it was given first, with the value that was given last."""
    merged: dict[str, Entry] = {}
    for file in files:
        reading = read_properties(file.content, file.name)
        _add(findings, reading.problems)
        merged.update({entry.key: entry for entry in reading.entries})
    return list(merged.values())


def _add(findings: Findings, problems: Iterable[Problem]) -> None:
    for problem in problems:
        findings.add(problem.code, problem.at, _component(problem.at.key), problem.text)


def _component(key: str) -> str:
    """Return the component that a key is about, as the tree names it."""
    parts = key.split(".")
    return "" if len(parts) < 2 else parts[0] if len(parts) < 4 else ".".join(parts[:3])


def _filtered(entries: list[Entry], world: World, findings: Findings, names: tuple[str, ...]) -> list[Entry]:
    """Return the entries with the references to their agents' config filters answered."""
    found: dict[str, Entry] = {entry.key: entry for entry in entries}
    for agent in agents_of(entries, Findings()).values():
        if names and agent.name not in names:
            continue
        filters = _filters(agent, findings, world.find_class)
        own = [entry for entry in entries if entry.key.startswith(agent.name + ".")]
        answered, problems = apply_filters(own, filters, world.lookups.environment, world.run)
        _add(findings, problems)
        found.update({entry.key: entry for entry in answered})
    return list(found.values())


def _filters(agent: RawAgent, findings: Findings, find_class: FindClass) -> list[ConfigFilter]:
    """Return the config filters of an agent that work."""
    filters = []
    for name in agent.names("configfilters"):
        raw = agent.components["configfilters"].get(name)
        path = f"{agent.name}.configfilters.{name}"
        if raw is None:
            text = f"{agent.name}.configfilters lists it, and it has no property: write {path}.type = env"
            findings.add("not-described", agent.lists["configfilters"], path, text)
            continue
        try:
            config = configure(raw, findings, find_class)
        except Refusal:
            continue
        filters.append(ConfigFilter(name, config.type, str(config.keywords.get("command", ""))))
    for name, raw in agent.components["configfilters"].items():
        if name not in agent.names("configfilters"):
            text = f"{agent.name}.configfilters does not list it, so nothing asks it: add {name}"
            findings.add("not-listed", raw.first, raw.path, text)
    return filters
