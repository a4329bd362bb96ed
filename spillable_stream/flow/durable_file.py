"""Small files that are replaced as a whole, so that a crash leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from spillable_stream import durable_names
from spillable_stream.durable_names import sync_names
from spillable_stream.system_errors import storage_error

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
        raise storage_error(f"can't read {path}", e, "let this user read it") from e


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
        raise storage_error(f"can't replace {path}", e, "check the directory") from e
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
            raise storage_error(f"can't create the directory {path}", e, "check what is there") from e
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

    One that this process has made must be durable, though another one owns the directory above.
    """
    fresh: dict[Path, tuple[int, int]] = {}

    def is_durable(directory: Path) -> bool:
        identity = _identity(directory)
        if _durable.get(directory) == identity or os.path.ismount(directory):
            return True
        fresh[directory] = identity
        return False

    if is_made:
        sync_directory(path.parent)
        fresh[path] = _identity(path)
    sync_names(path.parent if is_made else path, sync_directory, is_durable)
    if len(_durable) + len(fresh) > _MOST_KNOWN:
        _durable.clear()
    _durable.update(fresh)


def _identity(directory: Path) -> tuple[int, int]:
    try:
        found = directory.stat()
    except OSError as e:
        raise storage_error(f"can't look at the directory {directory}", e, "check what is there") from e
    return found.st_dev, found.st_ino


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        StorageError: the disk refused.
    """
    try:
        durable_names.sync_directory(path)
    except OSError as e:
        raise storage_error(f"can't sync the directory {path}", e, "check the disk") from e
