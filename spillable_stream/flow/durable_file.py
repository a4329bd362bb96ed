"""Small files that are replaced as a whole, so that a crash leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.sync_refusals import is_not_ours

__all__ = ["make_directory", "read_file", "replace_file", "sync_directory"]

_MOST_KNOWN = 1000
_durable: dict[Path, tuple[int, int]] = {}  # directories whose names this process has synced: device and inode of each


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
    """Replace a file durably; its directory is created if it is missing.

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
    """Create a directory, and those above it that are missing, durably: what is in it later is found after a power cut.

    One that is there may have been created a moment ago by another thread, or by a process that was killed before it
    synced the name. So each is synced once by this process, whoever created it.

    Raises:
        StorageError: the system refused, or a file is in its place.
    """
    is_made = False
    try:
        if not path.is_dir():
            if path.parent != path:
                make_directory(path.parent)
            path.mkdir()
            is_made = True
    except OSError as e:
        if not (isinstance(e, FileExistsError) and path.is_dir()):  # another sink created it in this moment
            raise StorageError(f"can't create the directory {path} ({e.strerror}); check what is there") from e
    real = Path(os.path.realpath(path))
    if is_made:
        _durable.pop(real, None)  # one that was removed may have had the same inode
    try:
        _make_durable(real, is_made=is_made)
    except BaseException:
        if is_made:
            with contextlib.suppress(OSError):
                path.rmdir()  # a sync that failed is not tried again for this name
        raise


def _make_durable(path: Path, *, is_made: bool) -> None:
    """Sync the names of a directory and of those above it, but for those that are known to be durable.

    The walk ends at a mount point, and below a directory that this process can't sync: that is somebody else's.
    """
    fresh: dict[Path, tuple[int, int]] = {}
    for directory in (path, *path.parents):
        identity = _identity(directory)
        if _durable.get(directory) == identity or os.path.ismount(directory):
            break
        try:
            sync_directory(directory.parent)
        except StorageError as e:
            if not is_not_ours(e.__cause__) or (is_made and directory == path):
                raise
            fresh[directory] = identity
            break
        fresh[directory] = identity
    if len(_durable) + len(fresh) > _MOST_KNOWN:
        _durable.clear()
    _durable.update(fresh)


def _identity(directory: Path) -> tuple[int, int]:
    try:
        found = directory.stat()
    except OSError as e:
        raise StorageError(f"can't look at the directory {directory} ({e.strerror}); check what is there") from e
    return found.st_dev, found.st_ino


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
