"""A disk that may lose what was not synced: which contents a power cut can leave.

The model is the weakest that POSIX allows and that ALICE (Pillai et al., OSDI 2014) found programs to
fail on. A sync makes a file's data and size durable, and no more: not its name. A directory's sync
makes the names in it durable. Until then every operation may have reached the disk or not, in any
order; of a write every sector on its own; a file's size without its data, which are zeros then, or
whatever the disk held there before the file had it. Where a file is overwritten, a sector is the old
one or the new one. A rename is one operation: seen or not seen, whatever became of
the file's data. What a failed sync was for may be on the disk or not, and no later sync changes that,
though it says that it succeeded (Rebello et al., ATC 2020). That goes for data: a file system that
can't write its journal stops, so a failed sync of a directory may be tried again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.lab.recorder import Operation

__all__ = ["Disk", "Image", "images"]

SECTOR_BYTES, PAGE_BYTES = 512, 4096
_NAMES = {"create", "mkdir", "symlink", "rename", "unlink", "rmdir"}


@dataclass(frozen=True)
class _Name:
    """What a name leads to: a file's inode, a link's target, or a directory."""

    inode: int = 0
    target: bytes | None = None


@dataclass(frozen=True)
class Image:
    """What a disk holds after a crash.

    Args:
        names: path to a file's content, a link's target as a str, or None for a directory.
    """

    names: dict[str, bytes | str | None]

    def write(self, root: Path) -> None:
        """Write the image into an empty directory."""
        for path, content in sorted(self.names.items()):
            if content is None:
                (root / path).mkdir(mode=0o700)
            elif isinstance(content, str):
                (root / path).symlink_to(content)
            else:
                (root / path).write_bytes(content)

    def key(self) -> int:
        """Return what tells this image from others."""
        return hash(tuple(sorted((path, hash(content)) for path, content in self.names.items())))


@dataclass
class Disk:
    """What is durable, and what is not yet.

    Args:
        names: the durable names.
        contents: the durable contents of the files, by inode.
        pending: the operations since, in order, that no sync has made durable.
        forsaken: those whose sync failed.
    """

    names: dict[str, _Name] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    pending: list[Operation] = field(default_factory=list)
    forsaken: list[Operation] = field(default_factory=list)

    @classmethod
    def of(cls, image: Image) -> Disk:
        """Return the disk of an image, all of it durable; its files have negative inodes."""
        disk = cls()
        for number, (path, content) in enumerate(sorted(image.names.items()), 1):
            if isinstance(content, bytes):
                disk.contents[-number] = content
                disk.names[path] = _Name(-number)
            else:
                disk.names[path] = _Name(target=None if content is None else content.encode())
        return disk

    def inodes(self) -> dict[str, int]:
        """Return the inode of every durable file, by path."""
        return {path: name.inode for path, name in self.names.items() if name.inode}

    def do(self, operation: Operation) -> None:
        """Do an operation: a sync makes earlier ones durable, all else is pending."""
        if not operation.name.startswith("sync"):
            self.pending.append(operation)
            return
        if operation.failed and operation.name == "sync_directory":
            return
        meant = [o for o in self.pending if _is_meant(o, operation)]
        self.pending = [o for o in self.pending if not _is_meant(o, operation)]
        if operation.failed:
            self.forsaken += meant
        else:
            self.forsaken = [o for o in self.forsaken if not any(_overwrites(m, o) for m in meant)]
            self._apply(meant)

    def in_doubt(self) -> list[Operation]:
        """Return the operations that may have reached the disk, in order."""
        return self.forsaken + self.pending

    def _apply(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            _apply(operation, self.names, self.contents)

    def after(self, operations: Sequence[Operation]) -> Image:
        """Return what there is if of the pending operations these, or parts of them, reached the disk."""
        names, contents = dict(self.names), dict(self.contents)
        for operation in operations:
            _apply(operation, names, contents)
        found: dict[str, bytes | str | None] = {}
        for path, name in sorted(names.items()):
            parent = path.rpartition("/")[0]
            if parent and found.get(parent, b"") is not None:
                continue  # its directory is not there
            if name.inode:
                found[path] = contents.get(name.inode, b"")
            else:
                found[path] = name.target.decode() if name.target is not None else None
        return Image(found)


def _is_meant(operation: Operation, sync: Operation) -> bool:
    """Tell whether a sync is for an operation."""
    if sync.name == "sync":
        return operation.inode == sync.inode and operation.name not in _NAMES
    return operation.name in _NAMES and (operation.path.rpartition("/")[0] or ".") == sync.path


def _overwrites(later: Operation, earlier: Operation) -> bool:
    """Tell whether nothing is left to say of an operation once a later one is durable."""
    if later.name in _NAMES or earlier.name in _NAMES:
        return bool({later.path, later.target} & {earlier.path, earlier.target} - {""})
    if later.inode != earlier.inode:
        return False
    if later.name == "truncate":
        return earlier.offset >= later.offset
    return later.offset < earlier.offset + len(earlier.data) and earlier.offset < later.offset + len(later.data)


def _apply(operation: Operation, names: dict[str, _Name], contents: dict[int, bytes]) -> None:
    match operation.name:
        case "create":
            names[operation.path] = _Name(operation.inode)
        case "mkdir":
            names[operation.path] = _Name()
        case "symlink":
            names[operation.path] = _Name(target=operation.data)
        case "rename":
            moved = names.pop(operation.path, None)
            moved = _Name(operation.inode) if operation.inode else moved
            if moved is not None:
                names[operation.target] = moved
        case "unlink" | "rmdir":
            names.pop(operation.path, None)
        case "truncate":
            old = contents.get(operation.inode, b"")
            contents[operation.inode] = old[: operation.offset].ljust(operation.offset, b"\0")
        case "allocate":
            contents[operation.inode] = contents.get(operation.inode, b"").ljust(operation.offset, b"\0")
        case "write" | "store":
            old, end = contents.get(operation.inode, b""), operation.offset + len(operation.data)
            before = old[: operation.offset].ljust(operation.offset, b"\0")
            contents[operation.inode] = before + operation.data + old[end:]
        case _:
            raise ValueError(operation.name)


# ── what a crash can leave ──────────────────────────────────────────────────────────────────────────


def images(disk: Disk, rng: random.Random, samples: int) -> Iterator[Image]:
    """Yield what a power cut now can leave, the likely cases and those that programs fail on first.

    Args:
        disk: the disk.
        rng: chooses the rest.
        samples: how many arbitrary subsets are tried; 0 for all, none and one subset of what is in doubt, no more.
    """
    heads, pending = _split_head(disk.in_doubt())
    few = [pending, [], [o for o in pending if rng.random() < 0.5]]
    for chosen in _Subsets(disk, rng).all(pending, samples) if samples else few:
        yield disk.after([*_head(heads, rng), *chosen])


def _split_head(pending: list[Operation]) -> tuple[list[Operation], list[Operation]]:
    """Return the stores into the head, which is never synced, and all else."""
    return [o for o in pending if o.name == "store"], [o for o in pending if o.name != "store"]


def _head(stores: list[Operation], rng: random.Random) -> list[Operation]:
    """Return the stores into the head that reached the disk: those up to some moment, one of them perhaps torn."""
    done = stores[: rng.choice([0, len(stores), len(stores), rng.randint(0, len(stores))])]
    if done and rng.random() < 0.2:
        cut = rng.randrange(len(done[-1].data))
        done[-1] = replace(done[-1], data=done[-1].data[:cut])
    return done


class _Subsets:
    """What of some operations may have reached a disk.

    Args:
        disk: the disk.
        rng: makes garbage and arbitrary choices.
    """

    def __init__(self, disk: Disk, rng: random.Random) -> None:
        self._disk = disk
        self._rng = rng

    def all(self, pending: list[Operation], samples: int) -> Iterator[list[Operation]]:
        """Yield subsets of the pending operations, whole ones and torn ones, and some arbitrary ones."""
        yield from (pending, [])
        for i in range(len(pending)):
            yield pending[:i]
            yield pending[i + 1 :]
            yield pending[:i] + pending[i + 1 :]
            yield [pending[i]]
        writes = [o for o in pending if o.name == "write"]
        for write in writes[-4:]:
            at = pending.index(write)
            for torn in self._torn(write):
                yield [*pending[:at], *torn, *pending[at + 1 :]]
                yield [*pending[:at], *torn]
        for _ in range(samples if len(pending) > 1 else 0):
            chosen = [o for o in pending if self._rng.random() < 0.5]
            if writes and self._rng.random() < 0.5:
                chosen = [part for o in chosen for part in (self._arbitrary(o) if o.name == "write" else [o])]
            yield chosen

    def _torn(self, write: Operation) -> Iterator[list[Operation]]:
        """Yield what a disk can make of one write: cut, holed, or only its size, at sectors and pages."""
        for unit in (SECTOR_BYTES, PAGE_BYTES):
            parts = list(_parts(write, unit))
            for i in range(1, len(parts)):
                yield parts[:i]
                yield parts[i:]
                yield [*parts[:i], *self._unwritten(parts[i : i + 1]), *parts[i + 1 :]]
                yield [*parts[:i], *self._unwritten(parts[i:])]
                yield [*self._unwritten(parts[:i], garbage=True), *parts[i:]]
        yield self._unwritten([write])
        yield self._unwritten([write], garbage=True)

    def _arbitrary(self, write: Operation) -> list[Operation]:
        """Return a write of which every sector reached the disk or not."""
        found: list[Operation] = []
        for part in _parts(write, SECTOR_BYTES):
            fate = self._rng.choice(["whole", "whole", "gone", "zeros", "garbage"])
            if fate == "whole":
                found.append(part)
            elif fate != "gone":
                found += self._unwritten([part], garbage=fate == "garbage")
        return found

    def _unwritten(self, writes: Sequence[Operation], garbage: bool = False) -> list[Operation]:
        """Return writes whose size reached the disk and whose data did not; what is overwritten stays as it was."""
        found = []
        for write in writes:
            size = len(write.data)
            before = self._disk.contents.get(write.inode, b"")[write.offset : write.offset + size]
            if not any(before):
                found.append(replace(write, data=self._rng.randbytes(size) if garbage else bytes(size)))
        return found


def _parts(write: Operation, unit: int) -> Iterator[Operation]:
    """Yield a write cut at every multiple of ``unit`` of the file."""
    offset, end = write.offset, write.offset + len(write.data)
    while offset < end:
        cut = min(end, (offset // unit + 1) * unit)
        yield replace(write, offset=offset, data=write.data[offset - write.offset : cut - write.offset])
        offset = cut
