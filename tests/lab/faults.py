"""Making system calls fail: once or for good, at any call of a program."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.lab.os_calls import in_place_of_os

__all__ = ["CALLS", "ERRORS", "SHORT", "SYNCS", "WRITES", "Fault", "faulty"]

SHORT = "short"  # a write or a read does half of what it was asked for
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EINTR", SHORT)
WRITES = ("pwritev", "pwrite")
SYNCS = ("fdatasync", "fsync")
_READS = ("preadv", "pread")
CALLS = (
    *WRITES,
    *SYNCS,
    *_READS,
    *("open", "ftruncate", "posix_fallocate", "replace", "unlink", "symlink", "mkdir", "rmdir"),
    *("fstat", "stat", "lstat", "lseek", "listdir", "scandir", "readlink"),
)


@dataclass
class Fault:
    """What fails.

    Args:
        number: the call that fails first, counted from 1; 0 for none.
        error: one of `ERRORS`.
        for_good: whether every later call of that name fails too.
        among: the names of the calls that are counted.

    Attributes:
        calls: how many of these there were.
        name: the call that failed, once it has.
    """

    number: int = 0
    error: str = "EIO"
    for_good: bool = False
    among: tuple[str, ...] = CALLS
    calls: int = 0
    name: str = ""

    def strikes(self, name: str) -> bool:
        """Count a call and tell whether it fails."""
        self.calls += name in self.among
        if self.calls == self.number and name in self.among:
            self.name = name
            return True
        return self.for_good and name == self.name

    def __str__(self) -> str:
        return f"{self.error} at call {self.number} ({self.name}){' and for good' if self.for_good else ''}"


class _Failing:
    """The ``os`` module, with a fault."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._watched(name, found) if name in CALLS else found

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if not self._fault.strikes(name):
                return function(*arguments)
            if self._fault.error == SHORT:
                return _half(name, function, arguments)
            number = getattr(errno, self._fault.error)
            raise OSError(number, os.strerror(number))

        return call


def _half(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Do half of a write or of a read, and all of any other call."""
    if name == "pwrite":
        descriptor, data, offset = arguments
        return function(descriptor, data[: (len(data) + 1) // 2], offset)
    if name == "pread":
        descriptor, size, offset = arguments
        return function(descriptor, (size + 1) // 2, offset)
    if name in WRITES:
        descriptor, buffers, offset = arguments
        data = b"".join(buffers)
        return function(descriptor, [data[: (len(data) + 1) // 2]], offset)
    if name in _READS:
        descriptor, (buffer,), offset = arguments
        half = memoryview(buffer)[: (len(buffer) + 1) // 2]  # a slice of Arrow's own is readonly
        return function(descriptor, [half], offset)
    return function(*arguments)


@contextlib.contextmanager
def faulty(fault: Fault) -> Iterator[None]:
    """Let a system call of the package fail, in this process."""
    failing = _Failing(fault)
    with in_place_of_os(failing):
        yield
