"""A machine whose power can be cut: a file system of its own on a loop device, and its memory.

`Machine.cut` is the shutdown ioctl of ext4 and xfs, as xfstests' ``godown`` uses it: what the file
system has not written yet is gone, in its journal too. `Machine.snapshot` copies the disk as a volume
manager does, in one moment: a clone of the image's file. `mounted` and `Machine` need root.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.power_cut.mounts import MountError, mount, run, unmount

__all__ = ["FILE_SYSTEMS", "THIN", "THIN_METADATA_BYTES", "Machine", "missing", "mounted", "resize"]

_SHUTDOWN = 0x8004587D
_NOLOGFLUSH = struct.pack("I", 2)
_VOLUME_MEGABYTES = 900
_EXT4 = ("mkfs.ext4", "-q", "-F", "-E", "nodiscard")
_XFS = ("mkfs.xfs", "-q", "-f", "-K")
# How each is created, how large its image is, and how it is mounted.
_MADE = {
    "ext4": (_EXT4, 64, "loop"),
    "ext4 without auto_da_alloc": (_EXT4, 64, "loop,noauto_da_alloc"),
    "ext4 with rare commits": (_EXT4, 64, "loop,commit=1000"),
    "xfs": (_XFS, 320, "loop"),
    "thin ext4": (
        (*_EXT4[:-1], "nodiscard,packed_meta_blocks=1", "-b", "4096", "-N", "512", "-J", "size=4"),
        64,
        "loop",
    ),
}
# ext4 hides missing syncs before a rename unless it is told not to; xfs never does. A commit of the
# journal every 1000 s hides nothing that one every 5 s may.
FILE_SYSTEMS = [kind for kind in _MADE if not kind.startswith("thin")]
# A file system that notes all that it must at the beginning of its disk, so that there can be room for that.
THIN, THIN_METADATA_BYTES = "thin ext4", 8 << 20


class Machine:
    """A file system whose power can be cut, and memory that goes with it.

    Args:
        directory: an empty directory for both.
        kind: one of `FILE_SYSTEMS`, or `THIN`.
        image_bytes: how much of the file system's image there is room for, if not for all: other writes to it fail.
        certain_bytes: for how much of the beginning of the image there is room in any case.

        snapshots: whether there will be snapshots; the image lies on an xfs then, which can clone it.

    Attributes:
        disk: the file system.
        memory: a directory in memory.
    """

    def __init__(
        self,
        directory: Path,
        kind: str,
        image_bytes: int | None = None,
        certain_bytes: int = 0,
        *,
        snapshots: bool = False,
    ) -> None:
        make, megabytes, self._options = _MADE[kind]
        self._thin = image_bytes is not None
        self._type = _type(kind)
        self.disk, self.memory, self._ram = (directory / name for name in ("disk", "ram/memory", "ram"))
        self._volume, self._copy = directory / "volume", directory / "copy"
        self._image = (self._volume if snapshots else self._ram) / "image"
        self.disk.mkdir()
        self._ram.mkdir()
        with ExitStack() as stack:
            mount("tmpfs", self._ram, f"size={image_bytes or 1 << 30}", "tmpfs")
            stack.callback(unmount, self._ram)
            self.memory.mkdir()
            if snapshots:
                self._make_volume(stack)
            with self._image.open("wb") as image:
                image.truncate(megabytes << 20)
            run(*make, str(self._image))
            if certain_bytes:
                with self._image.open("r+b") as image:
                    os.posix_fallocate(image.fileno(), 0, certain_bytes)
            self._mount()
            stack.callback(unmount, self.disk, self._image)
            self._stack = stack.pop_all()

    def _make_volume(self, stack: ExitStack) -> None:
        """Mount a file system that clones files, for the image."""
        outer = self._ram / "volume"
        with outer.open("wb") as image:
            image.truncate(_VOLUME_MEGABYTES << 20)
        run(*_XFS, "-m", "reflink=1", str(outer))
        self._volume.mkdir()
        self._copy.mkdir()
        mount(str(outer), self._volume, "loop", "xfs")
        stack.callback(unmount, self._volume, outer)

    def _mount(self) -> None:
        mount(str(self._image), self.disk, self._options, self._type)
        self._device = f"/dev/loop{os.minor(os.stat(self.disk).st_dev)}"
        if self._thin:  # a loop device takes a write for done of which a part found room: let each be of one page
            device = os.stat(self.disk).st_dev
            Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/max_sectors_kb").write_text("4")

    def cut(self, written_back: Path | None = None) -> None:
        """Cut the power of the disk: from now on every call fails, and what was not written never will be.

        Args:
            written_back: a file, or a directory for the whole disk, that the kernel happens to write before.
        """
        if written_back is not None and written_back.exists():
            subprocess.run(["sync", *(["-f"] if written_back.is_dir() else []), written_back], check=True, timeout=60)
        fd = os.open(self.disk, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _NOLOGFLUSH)
        finally:
            os.close(fd)

    def lose_the_disk(self) -> None:
        """Let the disk die: what is not in memory can't be read any more, and nothing can be written."""
        with self._image.open("r+b") as image:
            image.truncate(0)

    def restart(self) -> None:
        """Mount the disk again, which replays its journal, with empty memory; nobody may have a file of it open."""
        self.remount()
        for path in self.memory.iterdir():
            shutil.rmtree(path)

    def remount(self) -> None:
        """Mount the disk again, on another device, while the machine runs on; nobody may have a file of it open."""
        unmount(self.disk, self._image)
        with self._taking(self._device):
            self._mount()

    @contextmanager
    def _taking(self, device: str) -> Iterator[None]:
        """Take a loop device that was given back a moment ago, so that the next mount gets another one."""
        taken = self._ram / "taken"
        taken.write_bytes(bytes(1 << 20))
        command = ["losetup", device, str(taken)]
        had = subprocess.run(command, capture_output=True, timeout=60).returncode == 0  # else somebody else has it
        try:
            yield
        finally:
            if had:
                run("losetup", "--detach", device)

    @contextmanager
    def snapshot(self, *, frozen: bool = False) -> Iterator[Path]:
        """Copy the disk as it is in one moment, while programs use it, and mount the copy.

        Args:
            frozen: whether the file system is told to write all that it has first, as ``fsfreeze`` does.
        """
        clone = self._volume / "clone"
        if frozen:
            run("fsfreeze", "--freeze", str(self.disk))
        try:
            run("cp", "--reflink=always", str(self._image), str(clone))
        finally:
            if frozen:
                run("fsfreeze", "--unfreeze", str(self.disk))
        try:
            mount(str(clone), self._copy, f"{self._options}{',nouuid' if self._type == 'xfs' else ''}", self._type)
            try:
                yield self._copy
            finally:
                unmount(self._copy, clone)
        finally:
            clone.unlink()

    def make_room(self, image_bytes: int) -> None:
        """Make more room for the file system's image."""
        resize(self._ram, image_bytes)

    def forget_cache(self) -> None:
        """Let the kernel forget what it holds of files, but for what is yet to be written."""
        Path("/proc/sys/vm/drop_caches").write_text("3")

    def remove(self) -> None:
        """Unmount everything; again is fine."""
        self._stack.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@contextmanager
def mounted(directory: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system in memory of a size; see `resize`.

    Args:
        directory: where, an empty directory.
        size_bytes: how large.
    """
    mount("tmpfs", directory, f"size={size_bytes}", "tmpfs")
    try:
        yield directory
    finally:
        unmount(directory)


def resize(directory: Path, size_bytes: int) -> None:
    """Change the size of a file system in memory."""
    mount("tmpfs", directory, f"remount,size={size_bytes}", "tmpfs")


@functools.cache
def missing(kind: str) -> str:
    """Return what this machine lacks to cut the power of a kind of file system, in a sentence; "" for nothing."""
    if os.geteuid() != 0:
        return "needs root and loop devices"
    if shutil.which(_MADE[kind][0][0]) is None:
        return f"needs {_MADE[kind][0][0]}"
    with tempfile.TemporaryDirectory() as directory:
        try:
            with Machine(Path(directory), kind) as machine:
                machine.cut()
                machine.restart()
        except (OSError, MountError) as e:
            return f"needs loop devices and the shutdown of {_type(kind)} ({e})"
    return ""


def _type(kind: str) -> str:
    return "xfs" if kind == "xfs" else "ext4"
