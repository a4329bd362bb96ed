"""An agent of a file: one source, two channels, and a sink for each."""

from __future__ import annotations

from pathlib import Path

from spillable_stream import flow

__all__ = ["CONFIGURATION", "agent", "log", "write", "written"]

CONFIGURATION = """
a1.sources = r1
a1.channels = c1 c2
a1.sinks = k1 k2
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = g
a1.sources.r1.filegroups.g = {dir}/logs/app.*
a1.sources.r1.positionFile = {dir}/positions.json
a1.sources.r1.channels = c1 c2
a1.sources.r1.interceptors = i1
a1.sources.r1.interceptors.i1.type = static
a1.channels.c1.type = file
a1.channels.c1.checkpointDir = {dir}/c1
a1.channels.c1.minimumRequiredSpace = 0
a1.channels.c2.type = file
a1.channels.c2.checkpointDir = {dir}/c2
a1.channels.c2.minimumRequiredSpace = 0
a1.sinks.k1.type = file_roll
a1.sinks.k1.sink.directory = {dir}/out1
a1.sinks.k1.channel = c1
a1.sinks.k2.type = file_roll
a1.sinks.k2.sink.directory = {dir}/out2
a1.sinks.k2.channel = c2
"""


def write(place: Path, text: str) -> None:
    """Write the agent's file, at once: what is half written would be one more content."""
    (place / "flume.conf.new").write_text(text.format(dir=place))
    (place / "flume.conf.new").replace(place / "flume.conf")


def log(place: Path, *lines: str) -> None:
    """Append lines to the file that the agent reads."""
    with (place / "logs" / "app.log").open("a") as f:
        f.writelines(f"{line}\n" for line in lines)


def written(place: Path, out: str = "out1") -> list[str]:
    """Return the lines that a sink has written."""
    if not (place / out).exists():
        return []
    files = [f for f in sorted((place / out).iterdir()) if not f.name.startswith(".")]
    return [line for f in files for line in f.read_text().splitlines()]


def agent(place: Path) -> flow.Agent:
    """Return the agent of the file."""
    return flow.Agent.from_properties(place / "flume.conf", name="a1")
