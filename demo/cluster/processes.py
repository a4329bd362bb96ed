"""Processes of other programs: servers that answer at a port, lines in logs, and the end of all that was started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["LOOPBACK", "descendants", "end", "free_port", "kill", "serving", "tail", "wait_for_line"]

LOOPBACK = "127.0.0.1"
_START_SECONDS = 60.0
_LINE_SECONDS = 300.0
_STOP_SECONDS = 20.0
_ATTEMPTS = 3


def descendants(pid: int) -> list[int]:
    """Return a process and all that descend from it, parents first."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def kill(process: subprocess.Popen[Any]) -> None:
    """End a process and all its descendants by SIGKILL, as a power cut does."""
    for pid in descendants(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def end(process: subprocess.Popen[Any], seconds: float = 60) -> None:
    """End a process that leads a group, by SIGTERM and then SIGKILL, and what is left of its group."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def tail(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text(errors="replace")[-3000:]


def wait_for_line(process: subprocess.Popen[Any], log: Path, pattern: str) -> str:
    """Return what a pattern's group matches in a process's log, once it does.

    Raises:
        RuntimeError: the process ended, or does not say so in time.
    """
    deadline = time.monotonic() + _LINE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"no {pattern!r} in {log}:\n{tail(log)}")


def free_port(address: str = LOOPBACK) -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as s:
        s.bind((address, 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def serving(
    command: Callable[[int], Sequence[str]],
    log: Path,
    environment: Mapping[str, str] | None = None,
    address: str = LOOPBACK,
) -> Iterator[int]:
    """Run a server until the block ends and yield its port.

    Args:
        command: returns the command for a port.
        log: where its output goes.
        environment: more variables for it.
        address: where it listens.

    Raises:
        RuntimeError: it does not start.
    """
    for attempt in range(_ATTEMPTS):
        port = free_port(address)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(port),
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        try:
            if _answers(process, address, port):
                yield port
                return
        finally:
            end(process, _STOP_SECONDS)
        if attempt == _ATTEMPTS - 1:
            raise RuntimeError(f"{command(port)[0]} did not start:\n{tail(log)}")


def _answers(process: subprocess.Popen[bytes], address: str, port: int) -> bool:
    """Wait until a server takes connections; False if it ended, as when another took its port."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return True
        time.sleep(0.05)
    return False
