"""Configurations of flows in tests: read without any class, file, environment or clock of their own."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.model import AgentConfig, ComponentConfig, Loaded
from spillable_stream.flow.configuration.options import Kind
from spillable_stream.flow.configuration.reading import ConfigurationFile, World, read_agents
from spillable_stream.flow.configuration.substitution import Lookups


class NoClasses:
    """Knows no class but Flume's, and builds nothing."""

    def find(self, kind: Kind, name: str) -> str:
        raise OptionError(f"there is no class {name}")

    def check(self, component: ComponentConfig) -> None:
        pass


def world(environment: Mapping[str, str] | None = None, system: Mapping[str, str] | None = None) -> World:
    return World(NoClasses(), Lookups(environment or {}, system or {}))


def read(text: str, **environment: str) -> Loaded:
    """Return what a configuration says, its agents as `read_agents` finds them."""
    return read_agents([ConfigurationFile("flume.conf", dedent(text).encode())], world(environment))


def agent(text: str, name: str = "a1", **environment: str) -> AgentConfig:
    """Return one agent of a configuration."""
    return read(text, **environment).agents[name]


def found(loaded: Loaded) -> list[str]:
    """Return the findings as ``line severity code component``."""
    return [f"{f.line} {f.severity} {f.code} {f.component}".rstrip() for f in loaded.findings]


def running(config: AgentConfig) -> str:
    """Return what runs of an agent, in a line."""
    kinds = (config.sources, config.channels, config.sinks, config.sink_groups)
    return f"{config.name}: " + " | ".join(" ".join(c.name for c in kind) for kind in kinds)


SMALL = """
    a1.sources = r1
    a1.channels = c1
    a1.sinks = k1
    a1.sources.r1.type = seq
    a1.sources.r1.channels = c1
    a1.channels.c1.type = memory
    a1.sinks.k1.type = null
    a1.sinks.k1.channel = c1
"""
"""An agent without anything to say about."""

NETCAT = """
a1.sources = r1
a1.channels = c1
a1.sources.r1.type = netcat
a1.sources.r1.bind = 127.0.0.1
a1.sources.r1.port = 0
a1.sources.r1.channels = c1
a1.channels.c1.type = spillablememory
"""
"""An agent that waits for connections."""

SMALL_TESTS = """
files = ["flume.conf"]
[[test]]
name = "all to c1"
agent = "a1"
source = "r1"
events = [{body = "x"}]
[test.channels.c1]
bodies = ["x"]
"""
"""A file for `spillable test`: `SMALL`, as `flume.conf` beside it, passes."""
