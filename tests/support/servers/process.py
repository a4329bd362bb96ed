"""A server in a process of its own, at a free port of the loopback interface or of a test's host, ended by its ID."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["free_port", "program", "serving"]

HOST = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_ATTEMPTS = 3


def free_port(address: str = HOST) -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as s:
        s.bind((address, 0))
        return int(s.getsockname()[1])


def program(name: str, variable: str, package: str) -> str:
    """Return the path of a program, or skip the test.

    Args:
        name: what it is called.
        variable: the environment variable with its path, if it is not among those that the shell finds.
        package: what has it, for the reason.
    """
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        pytest.skip(f"needs {name}, of {package}: install it, or say where it is in {variable}")
    return found


@contextlib.contextmanager
def serving(
    command: Callable[[int], Sequence[str]],
    log: Path,
    environment: Mapping[str, str] | None = None,
    address: str = HOST,
) -> Iterator[int]:
    """Run a server until the block ends and yield its port.

    Args:
        command: returns the command for a port.
        log: where its output goes.
        environment: more variables for it.
        address: where it listens.
    """
    for attempt in range(_ATTEMPTS):
        port = free_port(address)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(port), stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
            )
        try:
            if _answers(process, address, port):
                yield port
                return
        finally:
            _stop(process)
        if attempt == _ATTEMPTS - 1:
            raise AssertionError(f"{command(port)[0]} did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _answers(process: subprocess.Popen[bytes], address: str, port: int) -> bool:
    """Wait until a server takes connections; False if it ended, as when another took its port."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return True
        time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
