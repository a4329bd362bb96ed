"""Groups of sinks: which sinks one thread runs, and the processor that chooses among them."""

from __future__ import annotations

from collections.abc import Collection

from spillable_stream.flow.configuration.components import Classes, Refusal
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig, DroppedComponent, SinkGroupConfig
from spillable_stream.flow.configuration.nested import configure_whole
from spillable_stream.flow.configuration.options import Kind, word_list
from spillable_stream.flow.configuration.registry import nearest
from spillable_stream.flow.configuration.tree import RawAgent, RawComponent

__all__ = ["configure_groups"]


def configure_groups(
    agent: RawAgent, sinks: Collection[str], findings: Findings, classes: Classes
) -> tuple[list[SinkGroupConfig], list[DroppedComponent]]:
    """Return the groups of an agent that run, and the groups that do not, with the sinks that go with them.

    Args:
        agent: the agent.
        sinks: the names of its sinks that run by themselves.
        findings: gets what is wrong.
        classes: finds classes, and tries components.
    """
    groups: list[SinkGroupConfig] = []
    dropped: list[DroppedComponent] = []
    group_of: dict[str, str] = {}
    listed, running = agent.names("sinkgroups"), dict.fromkeys(sinks)
    for name in listed:
        raw = agent.components["sinkgroups"].get(name)
        if raw is None:
            path = f"{agent.name}.sinkgroups.{name}"
            text = "it is listed, and has no property, so it does not run: describe it, or take it off the list"
            findings.add("not-described", agent.lists["sinkgroups"], path, text)
            dropped.append(DroppedComponent(Kind.SINK_GROUP, name, "", (), text))
            continue
        members: list[str] = []
        try:
            members = _members(raw, running, group_of, findings)
            groups.append(_group(raw, members, findings, classes))
        except Refusal as refusal:
            dropped.append(DroppedComponent(Kind.SINK_GROUP, name, raw.get("processor.type"), (), str(refusal)))
            for sink in members:
                described = agent.components["sinks"][sink]
                text = f"its group {name} does not run"
                channel = (described.get("channel"),)
                dropped.append(DroppedComponent(Kind.SINK, sink, described.get("type"), channel, text))
    for name, raw in agent.components["sinkgroups"].items():
        if name not in listed:
            text = f"{agent.name}.sinkgroups does not list it, so its sinks run by themselves: add {name}"
            findings.add("not-listed", raw.first, raw.path, text)
    return groups, dropped


def _members(raw: RawComponent, sinks: Collection[str], group_of: dict[str, str], findings: Findings) -> list[str]:
    """Return the sinks of a group that run, and are in no group before it."""
    if not raw.get("sinks"):
        text = f"it has no sinks, so it does not run: write {raw.path}.sinks = …"
        raise Refusal(findings.add("missing-property", raw.first, raw.path, text))
    at = raw.entries["sinks"]
    members = []
    for sink in dict.fromkeys(word_list(raw.get("sinks"))):
        if sink in group_of:
            text = f"its sink {sink} is in the group {group_of[sink]} already, and stays there: take it out of one"
            findings.add("sink-in-two-groups", at, raw.path, text)
        elif sink not in sinks:
            meant = nearest(sink, sinks)
            hint = f": did you mean {meant}?" if meant else ""
            findings.add("group-sink", at, raw.path, f"its sink {sink} does not run{hint}")
        else:
            members.append(sink)
    if not members:
        text = "no sink of it runs, so it does not run"
        raise Refusal(findings.add("no-sink-in-group", at, raw.path, text))
    group_of.update(dict.fromkeys(members, raw.name))
    return members


def _group(raw: RawComponent, members: list[str], findings: Findings, classes: Classes) -> SinkGroupConfig:
    for key, entry in raw.entries.items():
        if key != "sinks" and not key.startswith("processor."):
            meant = nearest(key, ("sinks", "processor.type"))
            hint = f": did you mean {meant}?" if meant else ": take it out"
            findings.add("unknown-property", entry, raw.path, f"nothing reads {key}{hint}")
    below = raw.below("processor", Kind.PROCESSOR, "processor")
    try:
        processor = configure_whole(below, findings, classes, default_type="default")
    except Refusal as refusal:
        where = refusal.seen_from(raw.first.file)
        text = f"its processor can't work ({where} says why), so its sinks do not run: {', '.join(members)}"
        raise Refusal(findings.add("part-fails", raw.first, raw.path, text)) from refusal
    _check_size(raw, processor, members, findings)
    _check_priorities(raw, processor, members, findings)
    at = raw.first
    return SinkGroupConfig(name=raw.name, sinks=tuple(members), processor=processor, file=at.file, line=at.line)


def _check_size(raw: RawComponent, processor: ComponentConfig, members: list[str], findings: Findings) -> None:
    at = raw.entries["sinks"]
    if processor.type == "default" and len(members) > 1:
        text = (
            f"the default processor serves one sink, and {len(members)} are in the group, so none of them runs: write "
            f"{raw.path}.processor.type = failover or load_balance"
        )
        raise Refusal(findings.add("group-size", at, raw.path, text))
    if processor.type == "load_balance" and len(members) < 2:
        text = f"load_balance needs two sinks, and one runs, {members[0]}, so it does not: take the group out"
        raise Refusal(findings.add("group-size", at, raw.path, text))
    if len(members) == 1:
        text = f"one sink of it runs, {members[0]}, so the group adds nothing: add a sink, or take the group out"
        findings.add("group-of-one", at, raw.path, text)


def _check_priorities(raw: RawComponent, processor: ComponentConfig, members: list[str], findings: Findings) -> None:
    if processor.type != "failover":
        return
    priorities = processor.keywords.get("priority", {})
    assert isinstance(priorities, dict)
    first: dict[object, str] = {}
    of_group = set(members)
    for sink, priority in priorities.items():
        at = raw.entries[f"processor.priority.{sink}"]
        if sink not in of_group:
            text = f"the group has no sink {sink} that runs, so its priority means nothing"
            findings.add("unknown-property", at, raw.path, text)
        elif priority in first:
            text = f"{sink} has the priority of {first[priority]}, {priority}, so it is never used: give it another"
            findings.add("same-priority", at, raw.path, text)
        else:
            first[priority] = sink
