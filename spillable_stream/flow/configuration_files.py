"""The files that an agent's configuration comes from, so that they can be read again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.model import AgentConfig, Loaded
from spillable_stream.flow.loading import load

__all__ = ["ConfigurationFiles", "runnable"]


@dataclass(frozen=True, slots=True)
class ConfigurationFiles:
    """Files, and how they are read.

    Args:
        paths: the files; a later one wins.
        name: the agent.
        system: what ``${sys:X}`` stands for.
        environment: what ``${env:X}`` stands for; the process's environment by default.
        mapped: names of Java classes, each with a Python class.
    """

    paths: tuple[str, ...]
    name: str
    system: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    mapped: Mapping[str, str] | None = None

    def modified(self) -> tuple[float, ...]:
        """Return when each file was written last."""
        return tuple(os.stat(p).st_mtime if os.path.exists(p) else 0.0 for p in self.paths)

    def load(self) -> Loaded:
        """Read the files; raises what `load` raises."""
        return load(
            list(self.paths), name=self.name, system=self.system, environment=self.environment, mapped=self.mapped
        )


def runnable(loaded: Loaded, name: str) -> AgentConfig:
    """Return an agent if something of it can run.

    Raises:
        OptionError: there is none of this name, or nothing of it can run; the message has the findings.
    """
    config = loaded.agents.get(name)
    if config is not None and config.valid:
        return config
    findings = "\n".join(str(f) for f in loaded.errors)
    if config is None:
        others = ", ".join(loaded.agents) or "none"
        raise OptionError(f"there is no agent {name!r} in the files; there are: {others}\n{findings}".rstrip())
    raise OptionError(f"nothing of the agent {name!r} can run\n{findings}".rstrip())
