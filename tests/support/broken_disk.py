"""A disk that breaks for a while, under one directory: its system calls fail as those of real ones do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.os_calls import in_place_of_os

__all__ = ["SYNCS", "BrokenDisk", "broken_disk"]

SYNCS = ("fdatasync", "fsync")


class BrokenDisk:
    """The ``os`` module, whose calls fail for files under a directory while it is broken.

    Args:
        directory: the directory.

    Attributes:
        calls: the names of the calls that fail now.
        first: how many of them succeed before that.
        number: what they fail with.
        failed: how many have failed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = f"{directory}/"
        self.calls: tuple[str, ...] = ()
        self.first = 0
        self.number = errno.EIO
        self.failed = 0

    def breaks(self, first: int = 0, calls: tuple[str, ...] = SYNCS, number: int = errno.EIO) -> None:
        """Let calls fail from now on."""
        self.first, self.number, self.calls = first, number, calls

    def works(self) -> None:
        """Let them succeed again."""
        self.calls = ()

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in self.calls:
            return found

        def call(*arguments: Any, **keywords: Any) -> Any:
            if self._is_here(arguments[0]):
                if self.first <= 0:
                    self.failed += 1
                    raise OSError(self.number, os.strerror(self.number))
                self.first -= 1
            return found(*arguments, **keywords)

        return call

    def _is_here(self, what: object) -> bool:
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fspath(what)  # type: ignore[call-overload]
        return f"{path}/".startswith(self._directory)


@contextmanager
def broken_disk(directory: Path) -> Iterator[BrokenDisk]:
    """Put a disk that works as yet under a directory, for this process."""
    disk = BrokenDisk(directory)
    with in_place_of_os(disk):
        yield disk
