"""Recording every operation on files, as the operating system is asked for it.

`recording` puts a proxy in place of the ``os`` module of the package's file system seam, so that what
is recorded is what really reaches the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.os_calls import in_place_of_os

__all__ = ["Note", "Operation", "Recording", "recording"]


@dataclass(frozen=True)
class Operation:
    """One operation that changed something or made it durable.

    Args:
        name: create, write, truncate, allocate, sync; mkdir, symlink, rename, unlink, rmdir, sync_directory; store.
        path: the file or directory, relative to the recorded one.
        inode: the number of the file, which no other file ever gets; 0 for directories and links.
        offset: where, in bytes; for truncate and allocate the new size.
        data: what was written; the target of a link.
        target: what a file was renamed to.
        failed: whether it failed; only syncs that did are recorded.
    """

    name: str
    path: str
    inode: int = 0
    offset: int = 0
    data: bytes = b""
    target: str = ""
    failed: bool = False

    def __str__(self) -> str:
        more = f" to {self.target}" if self.target else f" {self.offset}+{len(self.data)}" if self.inode else ""
        return f"{self.name} {self.path}{more}{' failed' if self.failed else ''}"


@dataclass(frozen=True)
class Note:
    """A line of the ledger."""

    line: str

    def __str__(self) -> str:
        return f"-- {self.line}"


@dataclass
class Recording:
    """What a program did to a directory, in order; also its ledger.

    Args:
        root: the directory; what is done elsewhere is not recorded.
        operations: the operations on files, and the ledger's lines among them.
        failing_sync: which sync fails, counted from 1; 0 for none.
    """

    root: Path
    operations: list[Operation | Note] = field(default_factory=list)
    failing_sync: int = 0
    syncs: int = 0
    _inodes: dict[str, int] = field(default_factory=dict)
    _open: dict[int, tuple[str, int]] = field(default_factory=dict)
    _last_inode: int = 0

    def write(self, *words: object) -> None:
        """Append a line to the ledger."""
        self.operations.append(Note(" ".join(map(str, words))))

    def know(self, inodes: dict[str, int]) -> None:
        """Begin with files that are there."""
        self._inodes.update(inodes)

    def note(self, name: str, path: str | None, inode: int = 0, **more: Any) -> None:
        """Record an operation, if it is on a file that is recorded."""
        if path is not None:
            self.operations.append(Operation(name, path, inode, **more))

    def relative(self, path: Any) -> str | None:
        """Return a path as it is recorded, None for one that is elsewhere."""
        text = os.fspath(path)
        root = str(self.root)
        if text == root:
            return "."
        inside = text[len(root) + 1 :] if text.startswith(root + "/") else None
        # What is behind the link to the memory tier is not on this disk.
        return None if inside is None or "/memory/" in inside else inside

    def opened(self, descriptor: int, path: Any, created: bool) -> None:
        """Remember what a descriptor is open for."""
        self._open.pop(descriptor, None)
        name = self.relative(path)
        if name is None:
            return
        if created:
            self._last_inode += 1
            self._inodes[name] = self._last_inode
            self.note("create", name, self._last_inode)
        self._open[descriptor] = name, self._inodes.get(name, 0)

    def on(self, descriptor: int) -> tuple[str | None, int]:
        """Return path and inode of an open file."""
        return self._open.get(descriptor, (None, 0))

    def renamed(self, source: Any, target: Any) -> None:
        """Record a rename."""
        old, new = self.relative(source), self.relative(target)
        if old is not None and new is not None:
            inode = self._inodes.pop(old, 0)
            self.note("rename", old, inode, target=new)
            if inode:
                self._inodes[new] = inode

    def unlinked(self, path: Any) -> None:
        """Record the removal of a file."""
        name = self.relative(path)
        if name is not None:
            self.note("unlink", name, self._inodes.pop(name, 0))


class _Os:
    """The ``os`` module, recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        created = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        descriptor = os.open(path, flags, mode)
        self._recording.opened(descriptor, path, created)
        return descriptor

    def pwritev(self, descriptor: int, buffers: Sequence[Any], offset: int) -> int:
        written = os.pwritev(descriptor, buffers, offset)
        path, inode = self._recording.on(descriptor)
        data = b"".join(bytes(b) for b in buffers)[:written]
        self._recording.note("write", path, inode, offset=offset, data=data)
        return written

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        written = os.pwrite(descriptor, data, offset)
        self._recording.note("store", *self._recording.on(descriptor), offset=offset, data=bytes(data[:written]))
        return written

    def ftruncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)
        self._recording.note("truncate", *self._recording.on(descriptor), offset=size)

    def posix_fallocate(self, descriptor: int, offset: int, size: int) -> None:
        os.posix_fallocate(descriptor, offset, size)
        self._recording.note("allocate", *self._recording.on(descriptor), offset=offset + size)

    def fdatasync(self, descriptor: int) -> None:
        self._sync(os.fdatasync, descriptor)

    def fsync(self, descriptor: int) -> None:
        self._sync(os.fsync, descriptor)

    def _sync(self, sync: Callable[[int], None], descriptor: int) -> None:
        sync(descriptor)
        path, inode = self._recording.on(descriptor)
        self._recording.syncs += path is not None
        failed = path is not None and self._recording.syncs == self._recording.failing_sync
        self._recording.note("sync" if inode else "sync_directory", path, inode, failed=failed)
        if failed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def replace(self, source: Any, target: Any) -> None:
        os.replace(source, target)
        self._recording.renamed(source, target)

    def unlink(self, path: Any) -> None:
        os.unlink(path)
        self._recording.unlinked(path)

    def symlink(self, target: Any, path: Any) -> None:
        os.symlink(target, path)
        self._recording.note("symlink", self._recording.relative(path), data=os.fsencode(target))

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        os.mkdir(path, mode)
        self._recording.note("mkdir", self._recording.relative(path))

    def rmdir(self, path: Any) -> None:
        os.rmdir(path)
        self._recording.note("rmdir", self._recording.relative(path))


@contextlib.contextmanager
def recording(root: Path, failing_sync: int = 0) -> Iterator[Recording]:
    """Record what is done to the files of a directory; a sync may be made to fail."""
    record = Recording(root, failing_sync=failing_sync)
    recorded = _Os(record)
    with in_place_of_os(recorded):
        yield record
