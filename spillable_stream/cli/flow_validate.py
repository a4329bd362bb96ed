"""The verb ``validate``: whether a configuration of Flume's is good, and what of it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spillable_stream.cli.app import HEALTHY, UNHEALTHY, AsJson, print_object
from spillable_stream.cli.flow_options import (
    AgentName,
    ClassMap,
    ConfigurationFiles,
    SystemProperties,
    loaded_configuration,
    pairs,
)

if TYPE_CHECKING:
    from spillable_stream.flow.configuration.model import AgentConfig, Finding, Loaded

__all__ = ["validate"]

_DenyWarnings = Annotated[bool, typer.Option("--deny-warnings", help="Warnings are status 1, too.")]
_Environment = Annotated[
    bool,
    typer.Option("--environment", help="Also look at this host: directories, ports, hosts, commands, agents that run."),
]


def validate(
    files: ConfigurationFiles,
    name: AgentName = None,
    define: SystemProperties = None,
    mapped: ClassMap = None,
    environment: _Environment = False,
    deny_warnings: _DenyWarnings = False,
    as_json: AsJson = False,
) -> None:
    """Check a configuration of Flume's, and say what of it runs. Nothing is bound or written.

    Example: `spillable validate -f flume.conf`

    Exit status: 0 good, 1 it has errors, 2 it can't be read.
    """
    loaded = loaded_configuration(files, name, define, mapped, as_json)
    findings = list(loaded.findings)
    if environment:
        from spillable_stream.flow.environment import environment_findings

        findings += environment_findings(loaded, pairs(define))
    if as_json:
        print_object(_as_dict(loaded, findings))
    else:
        for finding in findings:
            typer.echo(str(finding))
        for agent in loaded.agents.values():
            typer.echo(_summary(agent))
        typer.echo(_counts(findings))
    bad = {"error", "warning"} if deny_warnings else {"error"}
    raise typer.Exit(UNHEALTHY if any(f.severity in bad for f in findings) else HEALTHY)


def _as_dict(loaded: Loaded, findings: list[Finding]) -> dict[str, object]:
    agents = {
        name: {
            "sources": [c.name for c in agent.sources],
            "channels": [c.name for c in agent.channels],
            "sinks": [c.name for c in agent.sinks],
            "sinkgroups": [g.name for g in agent.sink_groups],
        }
        for name, agent in loaded.agents.items()
        if agent.valid
    }
    return {"agents": agents, "findings": [asdict(finding) for finding in findings]}


def _summary(agent: AgentConfig) -> str:
    if not agent.valid:
        return f"{agent.name}: nothing runs"
    kinds = {
        "sources": [c.name for c in agent.sources],
        "channels": [c.name for c in agent.channels],
        "sinks": [c.name for c in agent.sinks],
        "sink groups": [g.name for g in agent.sink_groups],
    }
    parts = [f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names]
    return f"{agent.name}: runs with {'; '.join(parts)}"


def _counts(findings: list[Finding]) -> str:
    counts = Counter(str(finding.severity) for finding in findings)
    return ", ".join(f"{counts[s]} {s}{'' if counts[s] == 1 else 's'}" for s in ("error", "warning", "note"))
