"""A file system that fails when it is told to and remembers what was asked of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from spillable_stream.errors import StorageError
from spillable_stream.format.frame import Payload
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem


class Call(NamedTuple):
    """One call: its name and the name of the file or directory."""

    name: str
    file: str


class FaultyFile(File):
    """A real file that asks its file system before each call."""

    def __init__(self, fs: FaultyFileSystem, file: File) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        file.close()
        self._fs = fs

    def read_buffer(self, offset: int, size: int) -> pa.Buffer:
        self._fs.before("read", self.path)
        found = super().read_buffer(offset, size)
        self._fs.read_bytes += len(found)
        return found

    def write(self, offset: int, buffers: Sequence[Payload]) -> int:
        try:
            self._fs.before("write", self.path)
        except StorageError:  # as a full disk does: a part is written
            data = b"".join(bytes(b) for b in buffers)
            super().write(offset, [data[: len(data) // 2]])
            raise
        return super().write(offset, buffers)

    def preallocate(self, offset: int, size: int) -> None:
        self._fs.before("preallocate", self.path)
        super().preallocate(offset, size)

    def truncate(self, size: int) -> None:
        self._fs.before("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._fs.before("sync", self.path)
        super().sync()

    def load(self, size: int) -> bytes:
        self._fs.refuse(Call("load", self.path.name))
        return super().load(size)

    def store(self, offset: int, data: bytes) -> None:
        self._fs.refuse(Call("store", self.path.name))
        super().store(offset, data)


class FaultyFileSystem(FileSystem):
    """The real file system; `failing` makes chosen calls raise StorageError.

    Attributes:
        calls: every call, in order, but those that load or store a few bytes for other processes.
        read_bytes: how much was read.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.read_bytes = 0
        self._fails: Callable[[Call], bool] = lambda call: False

    def before(self, name: str, path: Path) -> None:
        call = Call(name, path.name)
        self.calls.append(call)
        self.refuse(call)

    def refuse(self, call: Call) -> None:
        """Raise StorageError for a call that is to fail; it is not remembered."""
        if self._fails(call):
            raise StorageError(f"{call.name} {call.file} failed: made to fail by a test")

    @contextmanager
    def failing(self, when: Callable[[Call], bool]) -> Iterator[None]:
        """Let every call fail that ``when`` chooses."""
        self._fails = when
        try:
            yield
        finally:
            self._fails = lambda call: False

    def count(self, name: str, file: str = "") -> int:
        """Return how many calls of a name there were, to files whose names begin with ``file``."""
        return sum(c.name == name and c.file.startswith(file) for c in self.calls)

    def open(self, path: Path, **how: Any) -> File:
        self.before("create" if how.get("create") else "open", path)
        return FaultyFile(self, super().open(path, **how))

    def sync_directory(self, path: Path) -> None:
        self.before("sync_directory", path)
        super().sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.before("rename", target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.before("remove", path)
        super().remove(path)


class DyingFileSystem(FaultyFileSystem):
    """Dies at the n-th call that changes anything, and does nothing from then on.

    Args:
        calls: how many it lives through.
        only: the name of the calls that count; "" for all that change anything.
    """

    def __init__(self, calls: int, only: str = "") -> None:
        super().__init__()
        self.left = calls
        self._only = only
        self._fails = self._dies

    def _dies(self, call: Call) -> bool:
        self.left -= call.name == self._only if self._only else call.name not in ("read", "open")
        return self.left < 0


class FileSystemOfOthers(FileSystem):
    """The real file system, on which another process acts whenever somebody begins to look for the side files.

    Args:
        act: what the other process does.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._asked = "delayed-999999"

    def exists(self, path: Path) -> bool:
        self._look_for(path.name)
        return super().exists(path)

    def _look_for(self, name: str) -> None:
        if name.startswith("delayed-"):
            asked, self._asked = self._asked, name
            if name <= asked:
                self._act()


class FileSystemOfReaders(FileSystemOfOthers):
    """The same for those that look for the side files by opening them."""

    def exists(self, path: Path) -> bool:
        return FileSystem.exists(self, path)

    def open(self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> File:
        self._look_for(path.name)
        return super().open(path, create=create, exclusive=exclusive, readonly=readonly)


class SmallDisk(FaultyFileSystem):
    """The real file system, whose free space is that of a small disk on which there is nothing but one directory.

    Args:
        directory: the directory.
        total_bytes: the size of the disk.
    """

    def __init__(self, directory: Path, total_bytes: int) -> None:
        super().__init__()
        self._directory = directory
        self._total_bytes = total_bytes

        self._used_bytes = 0

    def use(self, size_bytes: int) -> None:
        """Let other programs write so much."""
        self._used_bytes += size_bytes

    def total_bytes(self, path: Path) -> int:
        return self._total_bytes

    def free_bytes(self, path: Path) -> int:
        return (
            self._total_bytes
            - self._used_bytes
            - sum(512 * found.stat().st_blocks for found in self._directory.rglob("*"))
        )


class InMemory(FileSystem):
    """The real file system, which takes a directory for one in memory.

    Args:
        directory: the directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def is_in_memory(self, path: Path) -> bool:
        return path.is_relative_to(self.directory)


class PausingFileSystem(FaultyFileSystem):
    """The real file system, on which others act before each call, and while somebody waits for a lock.

    Args:
        pause: lets them act.
    """

    def __init__(self, pause: Callable[[], object]) -> None:
        super().__init__()
        self._pause = pause

    def before(self, name: str, path: Path) -> None:
        self._pause()
        super().before(name, path)

    def make_directory(self, path: Path) -> None:
        self._pause()
        super().make_directory(path)


def nth(name: str, number: int, file: str = "") -> Callable[[Call], bool]:
    """Choose the ``number``-th call of a name to files whose names begin with ``file``, counted from 1."""
    seen = [0]

    def chosen(call: Call) -> bool:
        if call.name == name and call.file.startswith(file):
            seen[0] += 1
            return seen[0] == number
        return False

    return chosen


def since(first: Callable[[Call], bool], among: Callable[[Call], bool] = lambda _: True) -> Callable[[Call], bool]:
    """Choose a call and all after it, as of a disk that dies, or of a program that is killed; of these, some."""
    has_begun = [False]

    def chosen(call: Call) -> bool:
        has_begun[0] = has_begun[0] or first(call)
        return has_begun[0] and among(call)

    return chosen


class DeadDirectory(FileSystem):
    """The real file system, but for one directory, whose disk fails.

    Args:
        directory: the directory.
        readable: whether it fails only what writes, as a file system that is read-only or full does.
    """

    def __init__(self, directory: Path, *, readable: bool = False) -> None:
        self.directory = directory
        self.readable = readable
        self.dead = True

    def _check(self, path: Path, *, writes: bool = True) -> None:
        if self.dead and path.is_relative_to(self.directory) and (writes or not self.readable):
            raise StorageError(f"using {path} failed: made to fail by a test")

    def open(self, path: Path, **how: Any) -> File:
        self._check(path, writes=not how.get("readonly"))
        return super().open(path, **how)

    def list_files(self, directory: Path) -> list[str]:
        self._check(directory, writes=False)
        return super().list_files(directory)

    def make_directory(self, path: Path) -> None:
        self._check(path)
        super().make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._check(path)
        super().sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self._check(target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._check(path)
        super().remove(path)
