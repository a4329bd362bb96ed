"""Mounts that are this process's alone: an unmounted file system is gone, and so is its loop device.

Whoever makes a mount namespace, a container say, copies all mounts that it sees. A copy keeps a file system alive
whose power was cut, and its loop device; the next mount of the image would find both, and every file fail with EIO.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import time
from pathlib import Path

__all__ = ["MountError", "is_mounted", "kernel_log", "mount", "own_mounts", "run", "unmount"]

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_PATIENCE_SECONDS = 10.0
_LOG_LINES = 20


class MountError(Exception):
    """A file system can't be created, mounted or unmounted: nothing is said of what it holds."""


def mount(source: str, target: Path, options: str, kind: str = "auto") -> None:
    """Mount a file system, for this process and those that it starts."""
    own_mounts()
    run("mount", "-t", kind, "-o", options, source, str(target))


def unmount(target: Path, image: Path | None = None) -> None:
    """Unmount a file system if it is mounted.

    Args:
        target: where.
        image: its image, if `mount` made a loop device of that, which goes with the file system.

    Raises:
        MountError: it is in use, or another mount namespace has a copy of the mount.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while is_mounted(target):
        try:
            run("umount", str(target))
        except MountError:  # the kernel has yet to close the files of a process that was killed
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    while image is not None and (device := _loop_device(image)):
        if time.monotonic() > deadline:
            owners = ", ".join(_processes_with(target)) or "none that is known"
            raise MountError(f"{target} is unmounted, and {device} still has {image}. Who mounts it: {owners}")
        time.sleep(0.01)


def is_mounted(target: Path) -> bool:
    """Tell whether a file system is mounted in a directory."""
    # Not by a look at the directory: that fails in an xfs whose power was cut.
    return str(target) in _mount_points(Path("/proc/self/mountinfo"))


@functools.cache
def own_mounts() -> None:
    """Move this process into a mount namespace of its own, for good; the main thread calls it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace could be created")
    run("mount", "--make-rslave", "/")  # what is mounted here is seen here only


def kernel_log() -> str:
    """Return the last lines of the kernel's log, which say why a device failed."""
    said = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace")
    return "\n".join(["the kernel's log ends with:", *(said.stdout or said.stderr).splitlines()[-_LOG_LINES:]])


def run(*command: str) -> None:
    """Run a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise MountError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")


def _mount_points(mounts: Path) -> list[str]:
    return [line.split()[4] for line in mounts.read_text().splitlines()]


def _loop_device(image: Path) -> str:
    """Return the loop device that has an image; "" if none has."""
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if backing.read_text().strip() == os.path.realpath(image):
                return f"/dev/{backing.parts[3]}"
        except OSError:  # it was given back a moment ago
            continue
    return ""


def _processes_with(target: Path) -> list[str]:
    """Return the IDs of the processes that see a mount."""
    found = []
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if str(target) in _mount_points(mounts):
                found.append(mounts.parts[2])
        except OSError:  # it has ended
            continue
    return found
