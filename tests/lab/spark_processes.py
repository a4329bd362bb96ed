"""The processes of Spark's drivers and of a cluster's executors: which there are, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["end_session", "executors", "processes_of"]


def end_session(session: int) -> None:
    """Kill every process of a session, and see that none is left."""
    while left := list(processes_of(session)):
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def processes_of(session: int) -> Iterator[tuple[int, str]]:
    """Yield the processes of a session that are alive, each with its name."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            state, _, _, sid = rest.split()[:4]
            if int(sid) == session and state not in "ZX":
                yield int(entry.name), name


def executors(directory: Path) -> list[int]:
    """Return the process IDs of the executors of a cluster whose work is in a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            is_java = (entry / "comm").read_text() == "java\n"
            if is_java and (entry / "cwd").readlink().is_relative_to(directory / "work"):
                found.append(int(entry.name))
    return sorted(found)
