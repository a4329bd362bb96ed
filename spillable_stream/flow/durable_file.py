"""Small files that are replaced as a whole, so that a crash leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from spillable_stream.errors import StorageError

__all__ = ["make_directory", "read_file", "replace_file", "sync_directory"]


def read_file(path: Path) -> bytes | None:
    """Return the bytes of a file; None if there is none.

    Raises:
        StorageError: it can't be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as e:
        raise StorageError(f"can't read {path} ({e.strerror}); let this user read it") from e


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file durably; its directory is made if it is missing.

    Raises:
        StorageError: the disk refused; the old file is there.
    """
    new = path.with_name(path.name + ".new")
    make_directory(path.parent)
    try:
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as e:
        raise StorageError(f"can't replace {path} ({e.strerror}); check the directory, and free some space") from e
    sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, durably: what is in it later is found after a power cut.

    Raises:
        StorageError: the system refused, or a file is in its place.
    """
    try:
        if path.is_dir():
            return
        if path.parent != path:
            make_directory(path.parent)
        path.mkdir()
    except OSError as e:
        if isinstance(e, FileExistsError) and path.is_dir():  # another sink made it in this moment
            return
        raise StorageError(f"can't make the directory {path} ({e.strerror}); check what is there") from e
    try:
        sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            path.rmdir()  # else the next attempt would find it, and not sync its name
        raise


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        StorageError: the disk refused.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as e:
        raise StorageError(f"can't sync the directory {path} ({e.strerror}); check the disk") from e
