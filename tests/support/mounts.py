"""Directories that can't be written, however much root wants to, and small file systems: mounts. Needs root."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["NEEDS_MOUNTS", "mounted_readonly", "mounted_small", "unmount"]


@functools.cache
def why_no_mounts() -> str:
    """Return what this machine lacks to mount a directory, in a sentence; "" for nothing."""
    if os.geteuid() != 0:
        return "needs root, to mount a directory read-only"
    with tempfile.TemporaryDirectory() as directory:
        tried = subprocess.run(["mount", "--bind", directory, directory], capture_output=True)
        if tried.returncode != 0:
            return "needs bind mounts"
        subprocess.run(["umount", directory], check=True)
    return ""


NEEDS_MOUNTS = pytest.mark.skipif(bool(why_no_mounts()), reason=why_no_mounts() or "-")


@contextmanager
def mounted_readonly(directory: Path, at: Path | None = None) -> Iterator[Path]:
    """Mount a directory read-only at another one, or over itself, and return where it is."""
    at = at or directory
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", str(directory), str(at)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(at)], check=True)
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@contextmanager
def mounted_small(at: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system in memory that has room for so many bytes, and return where it is."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def unmount(directory: Path, *, leave_mount_point: bool = True, away: str = "disk") -> Path:
    """Put what is in a directory elsewhere, as if its disk were not mounted; return where."""
    elsewhere = directory.with_name(away)
    directory.rename(elsewhere)
    if leave_mount_point:
        directory.mkdir()
    return elsewhere
