"""Loading a configuration: the only step that reads files, runs commands and asks for the environment and the time."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime

from spillable_stream.arguments import path_text
from spillable_stream.error_text import naming
from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.configuration.builder import PythonClasses
from spillable_stream.flow.configuration.config_filters import FilterError
from spillable_stream.flow.configuration.date_lookup import formatted
from spillable_stream.flow.configuration.model import Loaded
from spillable_stream.flow.configuration.reading import ConfigurationFile, World, read_agents
from spillable_stream.flow.configuration.substitution import Lookups

__all__ = ["load"]

_COMMAND_TIMEOUT_SECONDS = 60.0
_MOST_BYTES = 1 << 20  # of a file: some 2,500 agents, which are checked in a few seconds


@checked
def load(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    name: str | None = None,
    system: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    mapped: Mapping[str, str] | None = None,
) -> Loaded:
    """Read and check a configuration of Flume's. Nothing is opened, bound or written.

    Args:
        paths: the file, or several of them: a later one wins.
        name: the agent to look at; all of the files' by default.
        system: what ``${sys:X}`` stands for, and other options of the command line (``-D``).
        environment: what ``${env:X}`` stands for; the process's environment by default.
        mapped: names of Java classes in the files, each with a Python class, ``module:Class``.

    Returns:
        The agents, each with what of it runs, and the findings.

    Raises:
        OSError: a file can't be read, is larger than 1 MiB, or is not a text.
        ImportError: the extra ``flow`` is not installed.
        OptionError: there is no file, or one is not a path.
    """
    given = paths if isinstance(paths, Sequence) and not isinstance(paths, (str, bytes)) else [paths]
    files = [ConfigurationFile(path, _content(path)) for path in (path_text("a path", p) for p in given)]
    if not files:
        raise OptionError("there is nothing to load: give at least one configuration file")
    now = datetime.now().astimezone()
    env = os.environ if environment is None else environment
    lookups = Lookups(env, dict(system or {}), lambda pattern: formatted(pattern, now))
    world = World(PythonClasses(mapped), lookups, _first_line)
    return read_agents(files, world, () if name is None else (name,))


def _content(path: str) -> bytes:
    """Return the bytes of a file that may be a configuration.

    Raises:
        OSError: it can't be read, is too large, or is not a text: each of its lines would be an error.
    """
    with naming(path), open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(
            errno.EFBIG,
            f"a configuration larger than {_MOST_BYTES >> 20} MiB is not read: give each agent a file of its own, and "
            "what they share by several -f",
            path,
        )
    if (offset := content.find(b"\0")) >= 0:
        raise OSError(errno.EINVAL, f"its byte {offset} is 0, as no byte of a configuration in UTF-8 is", path)
    return content


def _first_line(command: list[str]) -> str:
    """Run a config filter's command, and return the first line of its output."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_COMMAND_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise FilterError(f"{command[0]} can't be run: {e}") from e
    if done.returncode != 0:
        raise FilterError(f"{command[0]} ended with status {done.returncode}")
    lines = done.stdout.decode(errors="replace").splitlines()
    if not lines:
        raise FilterError(f"{command[0]} printed nothing")
    return lines[0]
