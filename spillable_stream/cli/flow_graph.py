"""The verb ``graph``: the topology of a configuration, drawn."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from spillable_stream.cli.app import HEALTHY, UNHEALTHY, AsJson, print_object
from spillable_stream.cli.flow_options import (
    AgentName,
    ClassMap,
    ConfigurationFiles,
    SystemProperties,
    loaded_configuration,
)
from spillable_stream.cli.output import say

__all__ = ["graph"]


class _Format(StrEnum):
    TEXT = "text"
    DOT = "dot"
    MERMAID = "mermaid"


def graph(
    files: ConfigurationFiles,
    name: AgentName = None,
    define: SystemProperties = None,
    mapped: ClassMap = None,
    form: Annotated[_Format, typer.Option("--format", help="How it is drawn.")] = _Format.TEXT,
    as_json: AsJson = False,
) -> None:
    """Draw the topology of a configuration of Flume's; what does not run is crossed out, with the reason.

    Example: `spillable graph -f flume.conf --format mermaid`

    Exit status: 0 something runs, 1 nothing does, 2 it can't be read.
    """
    from spillable_stream.flow.graph import Graph

    loaded = loaded_configuration(files, name, define, mapped, as_json)
    drawing = Graph(loaded)
    drawn = {_Format.TEXT: drawing.text, _Format.DOT: drawing.dot, _Format.MERMAID: drawing.mermaid}[form]()
    if as_json:
        print_object({"format": str(form), "graph": drawn})
    elif drawn:
        typer.echo(drawn)
    if not loaded.agents:
        for finding in loaded.findings:
            say(str(finding))
    raise typer.Exit(HEALTHY if any(agent.valid for agent in loaded.agents.values()) else UNHEALTHY)
