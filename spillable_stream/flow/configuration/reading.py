"""From the bytes of configuration files to agents and findings: all steps in their order, without input or output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spillable_stream.flow.configuration.advice import advise
from spillable_stream.flow.configuration.channels import user_directories
from spillable_stream.flow.configuration.components import Classes, Refusal, configure
from spillable_stream.flow.configuration.config_filters import ConfigFilter, FilterError, Run, apply_filters
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import AgentConfig, Loaded
from spillable_stream.flow.configuration.properties import Entry, Problem, read_properties
from spillable_stream.flow.configuration.substitution import Lookups, referenced, substitute, unresolved
from spillable_stream.flow.configuration.tree import RawAgent, agents_of, component_of
from spillable_stream.flow.configuration.validation import validate

__all__ = ["ConfigurationFile", "World", "read_agents"]


class ConfigurationFile(NamedTuple):
    """A file: its name, as it was given, and its bytes."""

    name: str
    content: bytes


def _no_command(command: list[str]) -> str:
    raise FilterError("commands are not run here")


@dataclass(frozen=True, slots=True)
class World:
    """What a configuration may ask of the world around it.

    Args:
        classes: finds classes, and tries components.
        lookups: what references in values are answered from.
        run: runs the command of a config filter.
    """

    classes: Classes
    lookups: Lookups = field(default_factory=Lookups)
    run: Run = _no_command


def read_agents(files: Sequence[ConfigurationFile], world: World, names: Sequence[str] = ()) -> Loaded:
    """Return what some files say together; a later file wins.

    Args:
        files: the files.
        world: what they may ask of the world around them.
        names: the agents to look at; all of the files' by default. Findings about others are left out.
    """
    findings = Findings()
    entries = _merged(files, findings)
    variables = referenced(entries)
    entries, problems = substitute(entries, world.lookups)
    _add(findings, problems)
    loops = {problem.at.key for problem in problems}
    agents: dict[str, AgentConfig] = {}
    user = user_directories(world.lookups.system, world.lookups.environment)
    filtered = _filtered(entries, world, findings, names)
    raw = agents_of(filtered, findings, variables)
    _add(findings, unresolved([entry for entry in filtered if entry.key not in loops]))
    for name, agent in raw.items():
        if names and name not in names:
            continue
        agents[name] = validate(agent, findings, world.classes, raw, user)
        advise(agent, agents[name], findings)
    if missing := [name for name in names if name not in raw] if names else [""] * (not raw):
        has = f"the file describes {', '.join(raw)}" if raw else "a line for one begins as a1.sources does"
        at = Entry("", "", files[-1].name, 0, "")
        for name in missing:
            findings.add("missing-agent", at, name, f"there is no agent{name and ' '}{name}: {has}")
    found = findings.sorted([file.name for file in files])
    if names:
        found = tuple(f for f in found if not f.component or f.component.partition(".")[0] in names)
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
        findings.add(problem.code, problem.at, component_of(problem.at.key), problem.text)


def _filtered(entries: list[Entry], world: World, findings: Findings, names: Sequence[str]) -> list[Entry]:
    """Return the entries with the references to their agents' config filters answered."""
    found: dict[str, Entry] = {entry.key: entry for entry in entries}
    by_agent: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_agent[entry.key.partition(".")[0]].append(entry)
    for agent in agents_of(entries, Findings()).values():
        if names and agent.name not in names:
            continue
        filters = _filters(agent, findings, world.classes)
        answered, problems = apply_filters(by_agent[agent.name], filters, world.lookups.environment, world.run)
        _add(findings, problems)
        found.update({entry.key: entry for entry in answered})
    return list(found.values())


def _filters(agent: RawAgent, findings: Findings, classes: Classes) -> list[ConfigFilter]:
    """Return the config filters of an agent that work."""
    filters = []
    listed = agent.names("configfilters")
    for name in listed:
        raw = agent.components["configfilters"].get(name)
        path = f"{agent.name}.configfilters.{name}"
        if raw is None:
            text = f"{agent.name}.configfilters lists it, and it has no property: write {path}.type = env"
            findings.add("not-described", agent.lists["configfilters"], path, text)
            continue
        try:
            config = configure(raw, findings, classes)
        except Refusal:
            continue
        filters.append(ConfigFilter(name, config.type, str(config.keywords.get("command", ""))))
    for name, raw in agent.components["configfilters"].items():
        if name not in listed:
            text = f"{agent.name}.configfilters does not list it, so nothing asks it: add {name}"
            findings.add("not-listed", raw.first, raw.path, text)
    return filters
