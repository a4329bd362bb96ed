"""Running verbs: in this process, and in one that can be killed; and what they put."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from spillable_stream import Channel
from spillable_stream.cli import app
from tests.support import pythons
from tests.support.events import put
from tests.support.flow_configurations import NETCAT

ROOT = Path(__file__).parents[2]

ASCII_FILES = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""The environment of a process that names files in ASCII."""


def run(*arguments: object, input: str | bytes | None = None) -> Result:
    """Run a verb in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments], input=input)


def start(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """Start a verb as a program of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "spillable_stream", *(a if isinstance(a, bytes) else str(a) for a in arguments)]
    return pythons.Popen(command, **{"env": environment, **options})  # type: ignore[call-overload, no-any-return]


def bodies(path: Path) -> list[bytes]:
    """Return the bodies of all events that a channel has now."""
    with Channel(path, create=False, readonly=True) as channel:
        return [body for batch in channel.read() for body in batch.column("body").to_pylist()]


def make_work(directory: Path) -> None:
    """Create what most verbs work on: a channel ``c`` with two events, an agent's ``flume.conf``, a file ``lines``."""
    with Channel(directory / "c", minimum_required_space=0) as channel:
        put(channel, b"a", b"b")
    (directory / "flume.conf").write_text(NETCAT)
    (directory / "lines").write_text("a\n")
