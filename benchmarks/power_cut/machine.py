"""A machine whose power can be cut: a file system in a loop device, and memory that goes with it.

The cut is the file system's own shutdown call, with which Linux's file system tests cut it: what
was not synced, in the page cache or in the journal, is gone. The next mount replays the journal.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.power_cut.mounts import MountError, is_mounted, mount, run, unmount

__all__ = ["KINDS", "Kind", "Machine", "machine", "missing", "scratch"]

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of ext4, XFS_IOC_GOINGDOWN of xfs: one number
_WITHOUT_FLUSHING_THE_LOG = 2
_IMAGE_BYTES = 320 << 20  # mkfs.xfs refuses less than 300 MiB; the image is sparse


@dataclass(frozen=True)
class Kind:
    """How a file system is created and mounted.

    Args:
        mkfs: the command that makes it, before the image's path.
        options: its mount options.
    """

    mkfs: tuple[str, ...]
    options: str = ""


# Nothing may run on its own in these: with ext4's usual `commit=5` its journal, and with lazy
# initialisation its background thread, would now and then sync what a product has not synced.
_EXT4 = ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0")
KINDS = {
    "ext4": Kind(_EXT4, "commit=1000"),
    # ext4 by default hides a missing sync before a rename.
    "ext4, noauto_da_alloc": Kind(_EXT4, "commit=1000,noauto_da_alloc"),
    "xfs": Kind(("mkfs.xfs", "-q")),
}


class Machine:
    """A mounted file system, which `machine` makes.

    Args:
        kind: which file system.
        directory: where its image and its mount point go; on another file system.

    Attributes:
        disk: a directory on the file system.
        memory: a directory that a power cut empties, for what a product keeps in shared memory.
    """

    def __init__(self, kind: Kind, directory: Path) -> None:
        self._kind = kind
        self._image, self._root = directory / "image", directory / "mounted"
        self.disk, self.memory = self._root / "disk", directory / "memory"

    def install(self) -> None:
        """Create the file system and mount it."""
        self._root.mkdir()
        self.memory.mkdir()
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        run(*self._kind.mkfs, str(self._image))
        self._mount()
        self.disk.mkdir()
        descriptor = os.open(self.disk, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def cut(self) -> None:
        """Cut the power: from here on nothing that was not synced can be."""
        descriptor = os.open(self._root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(descriptor)

    def boot(self) -> None:
        """Mount the file system again; every process that used it must have ended."""
        shutil.rmtree(self.memory)
        self.memory.mkdir()
        unmount(self._root, self._image)
        self._mount()

    def remove(self) -> None:
        """Leave nothing mounted."""
        try:
            unmount(self._root, self._image)
        except MountError:  # somebody still looks into it; it goes when they have ended
            if is_mounted(self._root):
                run("umount", "-l", str(self._root))
        self._image.unlink(missing_ok=True)

    def _mount(self) -> None:
        # mount makes the loop device, so that umount removes it.
        mount(str(self._image), self._root, ",".join(filter(None, ["loop", self._kind.options])))


@contextmanager
def machine(kind: str, directory: Path) -> Iterator[Machine]:
    """Yield a machine with a new file system of `KINDS`, which is unmounted at the end, whatever happens."""
    made = Machine(KINDS[kind], directory)
    try:
        made.install()
        yield made
    finally:
        made.remove()


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory in memory, if there is room for an image: it takes no time to sync there."""
    shared = Path("/dev/shm")
    has_room = shared.is_dir() and shutil.disk_usage(shared).free > 2 * _IMAGE_BYTES  # else writes to the image fail
    with tempfile.TemporaryDirectory(prefix="power-cut-", dir=shared if has_room else None) as place:
        yield Path(place)


def missing() -> str:
    """Return why the power can't be cut here, in one sentence; nothing if it can."""
    if os.geteuid() != 0:
        return "cutting the power takes root: it mounts file systems in loop devices"
    for command in ("mount", "umount", *sorted({kind.mkfs[0] for kind in KINDS.values()})):
        if not shutil.which(command):
            return f"{command} is missing: apt-get install mount e2fsprogs xfsprogs"
    for kind in KINDS:
        try:
            with scratch() as place, machine(kind, place) as made:
                made.cut()
        except (OSError, MountError) as e:
            return f"the power of {kind} in a loop device can't be cut here: {e}"
    return ""
