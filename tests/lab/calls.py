"""The system calls by which the package changes files: seen, counted, and cut short at any of them.

`watching` stands between the package and the operating system of this process. strace sees the same
from outside; `test_kill_points` proves that it does.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest import mock

import pytest

from spillable_stream.format.head_page import CommitPoint, HeadState
from spillable_stream.log.head import Head
from tests.lab.os_calls import in_place_of_os

__all__ = [
    "NEEDS_STRACE",
    "Call",
    "Moment",
    "Recorder",
    "Watcher",
    "kill_at",
    "read_trace",
    "stop_at",
    "strace",
    "watching",
]

# Python's name of a call: the kernel's, as strace prints it on any machine.
_CALLS = {
    "open": "open",
    "close": "close",
    "pwritev": "write",
    "ftruncate": "truncate",
    "posix_fallocate": "fallocate",
    "fdatasync": "sync",
    "fsync": "sync",
    "mkdir": "mkdir",
    "rmdir": "rmdir",
    "replace": "rename",
    "unlink": "unlink",
    "symlink": "symlink",
    "flock": "lock",
}
_TRACED = {
    **{name: "open" for name in ("open", "openat", "creat")},
    "close": "close",
    **{name: "write" for name in ("write", "pwrite64", "writev", "pwritev", "pwritev2")},
    **{name: "truncate" for name in ("truncate", "ftruncate")},
    "fallocate": "fallocate",
    **{name: "sync" for name in ("fsync", "fdatasync")},
    **{name: "mkdir" for name in ("mkdir", "mkdirat")},
    "rmdir": "rmdir",
    **{name: "rename" for name in ("rename", "renameat", "renameat2")},
    **{name: "unlink" for name in ("unlink", "unlinkat")},
    **{name: "symlink" for name in ("symlink", "symlinkat")},
    "flock": "lock",
}
_STRACE = shutil.which("strace")
NEEDS_STRACE = pytest.mark.skipif(_STRACE is None, reason="strace is not installed")


class Call(NamedTuple):
    """One system call on a file.

    Args:
        name: what it does: one of the values of `_CALLS`, or "publish" or "ledger".
        path: the file or directory; of a rename the new name.
        more: "create" for an open that makes files, a rename's old name, what a head says of the disk tier, or a
            ledger's line.
        number: strace counts the calls of each name; this is the how manieth it was of `syscall`.
        syscall: what the kernel calls it.
    """

    name: str
    path: str
    more: str = ""
    number: int = 0
    syscall: str = ""


class Moment(NamedTuple):
    """A moment "before" a call, or "half" way through a write; the head, which is mapped, has a "publish" of its own.

    After a call all is as it is before the next one.
    """

    when: str
    name: str
    args: tuple[Any, ...]

    def call(self) -> Call:
        """Return the call; its files must still be open."""
        if self.name == "publish":
            return Call("publish", "head", HeadState(self.args[0].disk.state).name)
        name, first = _CALLS[self.name], self.args[0]
        path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else os.fspath(first)
        path = path.removesuffix(" (deleted)")
        if name == "open":
            return Call(name, path, "create" if self.args[1] & os.O_CREAT else "")
        if name in ("rename", "symlink"):
            return Call(name, os.fspath(self.args[1]), path)
        return Call(name, path)


class Watcher(Protocol):
    """What is told of every moment."""

    def __call__(self, moment: Moment) -> object:
        """Look, or never return."""


class _Module:
    """A module some of whose functions are watched."""

    def __init__(self, module: Any, watcher: Watcher) -> None:
        self._module = module
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name in _CALLS:
            found = self._watched(name, found)
        setattr(self, name, found)
        return found

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._watcher(Moment("before", name, args))
            if name == "pwritev":
                fd, views, offset = args
                data = b"".join(views)
                function(fd, [data[: len(data) // 2]], offset)
                self._watcher(Moment("half", name, args))
            return function(*args)

        return call


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Tell a watcher of every system call by which the package changes files, in this process."""
    write = Head.write

    def publish(self: Head, published: CommitPoint) -> CommitPoint:
        watcher(Moment("before", "publish", (published,)))
        return write(self, published)

    with (
        mock.patch.object(Head, "write", publish),
        in_place_of_os(_Module(os, watcher)),
        mock.patch("spillable_stream.storage.lock.fcntl", _Module(fcntl, watcher)),
    ):
        yield


class Recorder:
    """A watcher that remembers every call, and a ledger whose lines it remembers among them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.moments = 0

    def __call__(self, moment: Moment) -> None:
        """Remember a call."""
        self.moments += 1
        if moment.when == "before":
            self.calls.append(moment.call())

    def write(self, *words: object) -> None:
        """Remember a line of a ledger."""
        self.calls.append(Call("ledger", "", " ".join(map(str, words))))


def kill_at(number: int) -> Watcher:
    """Return a watcher that kills this process at the so manieth moment, from 1."""
    return _signal_at(signal.SIGKILL, number, lambda moment: True)


def stop_at(when: str, name: str, number: int = 1) -> Watcher:
    """Return a watcher that stops this process, until it is told to go on, at the so manieth such moment, from 1."""
    return _signal_at(signal.SIGSTOP, number, lambda moment: (moment.when, moment.name) == (when, name))


def _signal_at(what: signal.Signals, number: int, chosen: Callable[[Moment], bool]) -> Watcher:
    left = number

    def watch(moment: Moment) -> None:
        nonlocal left
        left -= chosen(moment)
        if left == 0:
            left = -1
            os.kill(os.getpid(), what)

    return watch


# ── the same, seen from outside ─────────────────────────────────────────────────────────────

_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|\?)")
_FD = re.compile(r"(?:AT_FDCWD|\d+)<([^>]*)>")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def strace(arguments: list[str], output: Path, *more: str) -> int:
    """Run a program of this Python under strace and return its exit code, that of a signal negated.

    Args:
        arguments: of Python.
        output: where the trace goes.
        more: more arguments of strace.
    """
    assert _STRACE is not None, "ask NEEDS_STRACE"
    only = f"--trace=?{',?'.join(_TRACED)}"
    command = [_STRACE, "-f", "-y", "-qq", "-s", "400", "--signal=none", only, "-o", str(output), *more]
    found = subprocess.run([*command, sys.executable, *arguments], cwd=Path(__file__).parents[2], timeout=120)
    return found.returncode


def read_trace(output: Path, *under: Path) -> list[Call]:
    """Return the calls of a trace on files under some paths, in order; those that failed as a program expects too."""
    calls: list[Call] = []
    counts: dict[str, int] = {}
    for line in output.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if not match or match[1] not in _TRACED:
            continue
        counts[match[1]] = counts.get(match[1], 0) + 1
        call = _parse(match[1], match[2])._replace(number=counts[match[1]], syscall=match[1])
        if any(Path(call.path).is_relative_to(path) for path in under):
            calls.append(call)
    return calls


def _parse(syscall: str, arguments: str) -> Call:
    name = _TRACED[syscall]
    strings = [s.encode().decode("unicode_escape") for s in _STRING.findall(arguments)]
    fds = _FD.findall(arguments)
    if name in ("write", "truncate", "fallocate", "sync", "close", "lock") and fds:
        return Call(name, fds[0], strings[0] if name == "write" and strings else "")
    if name == "open":
        return Call(name, strings[0], "create" if "O_CREAT" in arguments else "")
    if name == "unlink" and "AT_REMOVEDIR" in arguments:
        name = "rmdir"
    return Call(name, strings[-1], strings[0] if len(strings) > 1 else "") if strings else Call(name, "")
