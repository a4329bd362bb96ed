"""Small files that are replaced as a whole, so that a crash leaves the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from spillable_stream.errors import StorageError

__all__ = ["read_file", "replace_file", "sync_directory"]


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as e:
        raise StorageError(f"can't replace {path} ({e.strerror}); check the directory, and free some space") from e
    sync_directory(path.parent)


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
