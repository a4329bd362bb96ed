"""Containers of one machine: each has its own mounts, its own shared memory and its own name, and they share a disk.

`Host` needs root.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.children import Child
from tests.support.waiting import is_readable

__all__ = ["NEEDS_NAMESPACES", "Host", "why_no_namespaces"]

_OWN_DIRECTORY, _NEW_MOUNTS, _NEW_NAME = 0x00000200, 0x00020000, 0x04000000  # CLONE_FS, CLONE_NEWNS, CLONE_NEWUTS
_KINDS = ("mnt", "uts")
_MOST_SECONDS = 60.0  # for what takes milliseconds, on a busy machine


@functools.cache
def why_no_namespaces() -> str:
    """Return what this machine lacks to make containers, in a sentence; "" for nothing."""
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    tried = subprocess.run(
        ["unshare", "--mount", "--uts", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
        capture_output=True,
        timeout=_MOST_SECONDS,
    )
    return "" if tried.returncode == 0 else "needs mount and UTS namespaces"


NEEDS_NAMESPACES = pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces() or "-")


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


class Host:
    """A container with empty shared memory, until `stop`.

    Args:
        directory: where its complaints go.
        name: the name that it has, which others may have too.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._stderr = directory / "stderr"
        self._name = name
        ready, told = os.pipe()
        self._holder = Child(lambda: self._hold(told), self._stderr, 600)
        os.close(told)
        try:
            is_ready = is_readable(ready, 2 * _MOST_SECONDS) and bool(os.read(ready, 1))
        finally:
            os.close(ready)
        if not is_ready:
            self.stop()
            raise AssertionError(f"no container: {self._stderr.read_text() if self._stderr.exists() else 'it hangs'}")

    def _hold(self, told: int) -> None:
        _call("unshare", _NEW_MOUNTS | _NEW_NAME)
        for command in ["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]:
            subprocess.run(command, check=True, capture_output=True, timeout=_MOST_SECONDS)
        socket.sethostname(self._name)
        os.write(told, b"x")
        signal.pause()

    def start(self, do: Callable[[], object], seconds: float = 60) -> Child:
        """Start a process in it."""
        namespaces = [Path(f"/proc/{self._holder.pid}/ns/{kind}") for kind in _KINDS]

        def inside() -> None:
            _call("unshare", _OWN_DIRECTORY)  # which the watchdog's thread shares else
            for namespace in namespaces:
                fd = os.open(namespace, os.O_RDONLY)
                _call("setns", fd, 0)
                os.close(fd)
            do()

        return Child(inside, self._stderr, seconds)

    def run(self, do: Callable[[], object]) -> str:
        """Do something in it; return what it complained of, "" if it went well."""
        before = self._stderr.stat().st_size if self._stderr.exists() else 0
        code = self.start(do).wait()
        return "" if code == 0 else f"ended with {code}: {self._stderr.read_text()[before:][-3000:]}"

    def stop(self) -> None:
        """Stop it, which takes its memory; again is fine."""
        self._holder.kill()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
