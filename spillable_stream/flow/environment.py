"""What a configuration needs of this host: directories, ports, hosts and commands, looked at before anything runs."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from spillable_stream.errors import SpillableError
from spillable_stream.flow.configuration.findings import CODES
from spillable_stream.flow.configuration.model import AgentConfig, ComponentConfig, Finding, Loaded
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.open_channel import arguments_on_host, directories_of, flume_file
from spillable_stream.flow.sinks.destinations import resolve
from spillable_stream.flow.sinks.output_directory import OutputDirectory
from spillable_stream.flow.tap_server import running_processes

__all__ = ["environment_findings"]

_UDP = {"netcatudp", "syslogudp"}
_FLUME_TRACKER = ".flumespool-main.meta"


def environment_findings(
    loaded: Loaded, system: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return what the components that run lack on this host. A port is bound for a moment; nothing is written.

    Args:
        loaded: the configuration.
        system: the options ``-D``.
        environment: the environment; the process's own by default.
    """
    env = os.environ if environment is None else environment
    return [finding for agent in loaded.agents.values() for finding in _of_agent(agent, system, env)]


def _of_agent(agent: AgentConfig, system: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Finding]:
    first = min((*agent.sources, *agent.channels, *agent.sinks), key=lambda c: (c.file, c.line), default=None)
    if first is not None and (running := running_processes(agent.name, environment)):
        text = (
            f"an agent of this name runs in process {', '.join(map(str, running))}; if it has these files, another one "
            "would wait for it, and find its ports in use: stop it first, or send it SIGHUP to reload"
        )
        yield Finding(first.file, first.line, CODES["agent-runs"][0], "agent-runs", agent.name, text)
    for source in agent.sources:
        for code, text in _of_source(source, environment):
            yield _finding(code, text, agent, source)
    for channel in agent.channels:
        for code, text in _of_channel(directories_of(arguments_on_host(agent.name, channel, system, environment))):
            yield _finding(code, text, agent, channel)
    for sink in agent.sinks:
        for code, text in _of_sink(sink, system, environment):
            yield _finding(code, text, agent, sink)


def _finding(code: str, text: str, agent: AgentConfig, component: ComponentConfig) -> Finding:
    places = {Kind.SOURCE: "sources", Kind.CHANNEL: "channels", Kind.SINK: "sinks"}
    path = f"{agent.name}.{places[component.kind]}.{component.name}"
    return Finding(component.file, component.line, CODES[code][0], code, path, text)


def _of_source(source: ComponentConfig, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    keywords = source.keywords
    if source.type == "spooldir":
        directory = str(keywords["spool_dir"])
        yield from _readable(directory)
        tracker = os.path.join(directory, str(keywords.get("tracker_dir", ".flumespool")), _FLUME_TRACKER)
        if os.path.exists(tracker) and os.path.getsize(tracker):
            yield (
                "flume-tracker",
                f"{tracker} says how far Flume's agent is in a file, and is not read: let that agent finish its file, "
                "and stop it, or the file is read from its beginning",
            )
    elif source.type == "taildir":
        groups = keywords["filegroups"]
        assert isinstance(groups, Mapping)
        for pattern in groups.values():
            yield from _readable(os.path.dirname(str(pattern)))
    elif source.type == "exec":
        words = str(keywords.get("shell") or keywords["command"]).split()
        if shutil.which(words[0], path=environment.get("PATH")) is None:
            yield "command-missing", f"the command {words[0]} is not there, or can't be run: give its whole path"
    ports = keywords.get("ports", (keywords.get("port", 0),))
    assert isinstance(ports, tuple)
    for port in filter(None, ports):
        yield from _bindable(str(keywords.get("bind", keywords.get("host", "0.0.0.0"))), port, source.type in _UDP)


def _readable(directory: str) -> Iterator[tuple[str, str]]:
    if not os.path.isdir(directory):
        yield "directory-missing", f"there is no directory {directory}: create it before the agent starts"
    elif not os.access(directory, os.R_OK | os.X_OK):
        yield "directory-unusable", f"the directory {directory} can't be read by this user: change its mode"


def _bindable(address: str, port: int, udp: bool) -> Iterator[tuple[str, str]]:
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_DGRAM if udp else socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with closing(socket.socket(family, kind)) as listener:
            if not udp:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
    except OSError as e:
        yield "port-in-use", f"nothing can listen on {address}:{port}: {e.strerror or e}"


def _of_channel(directories: list[str]) -> Iterator[tuple[str, str]]:
    for directory in directories:
        yield from _writable(directory)
        found = flume_file(directory) if os.access(directory, os.R_OK) else ""
        if found:
            yield (
                "flume-files",
                (
                    f"{directory} holds a channel of Flume's ({found}), which is not touched: let Flume's agent empty "
                    "it and stop, then move its files away, or give the channel another directory"
                ),
            )


def _writable(directory: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a directory that is created if it is missing."""
    place = Path(directory).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        yield "directory-unusable", f"{directory} can't be created: {place} is a file"
    elif not os.access(place, os.W_OK | os.X_OK):
        yield "directory-unusable", f"{directory} can't be written by this user: change the mode of {place}"


def _of_sink(
    sink: ComponentConfig, system: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    keywords = sink.keywords
    if sink.type == "file_roll":
        yield from _writable(str(keywords["directory"]))
    elif sink.type in ("hdfs", "parquet"):
        try:
            found = resolve(str(keywords["path"]), system, environment)
        except SpillableError as e:
            yield "file-system-unusable", str(e)
        else:
            if found.is_local:
                yield from _writable(str(OutputDirectory.of_pattern(found.path).path))
    elif sink.type == "http":
        yield from _resolvable(str(keywords["endpoint"]))


def _resolvable(address: str) -> Iterator[tuple[str, str]]:
    host = urlsplit(address).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError as e:
        yield "host-unreachable", f"the host {host} has no address: {e.strerror or e}"
