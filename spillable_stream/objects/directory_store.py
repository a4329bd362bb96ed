"""A store in a plain directory: one file per object, created by a hard link, which fails if the name is taken.

A new object is written to a temporary file and synced before it gets its name, so no name ever leads to a part of an
object. A temporary name of the file stays until the directory is synced, also of one that is renamed: a reader that
finds two names for one file knows that a power cut could still take the object away, and syncs the directory itself
before it returns anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from spillable_stream.errors import ChannelClosedError, StorageError
from spillable_stream.format.frame import Payload
from spillable_stream.objects.store import (
    Change,
    Content,
    ObjectInfo,
    ObjectMissingError,
    Store,
    StoreError,
    StoreFullError,
)
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["DirectoryStore", "DirectoryUpload", "remove_made"]

_TEMPORARY = ".tmp-"
_KEPT_SECONDS = 3600.0  # a temporary file that is older was left by a crash
_ATTEMPTS = 10  # to create a file in a directory that others may remove
_MISSING = {errno.ENOENT, errno.ENOTDIR}
_LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class DirectoryStore:
    """The objects in a directory, which only the user that created it may read. Implements `Store`.

    The directory is created when the first object is written. Keys that differ only in a part that is an object and
    the beginning of other keys ("a" and "a/b") can't be in it together.

    Args:
        root: the directory.
        fs: the file system.
    """

    def __init__(self, root: Path, fs: FileSystem | None = None) -> None:
        self._root = root
        self._fs = fs or FileSystem()
        self._prepared: set[Path] = set()
        self._made: list[Path] = []  # the directories that were missing, each before those in it
        self._preparing = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._root,)

    @property
    def root(self) -> str:
        """The directory, as users name it."""
        return f"object+file://{self._root}"

    def create(self, key: str, data: Content) -> bool:
        """Create an object if there is none; see `Store.create`."""
        path = self._path(key)
        temporary = self._write(path, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            if not _is_same_file(temporary, path):  # else a server has repeated the request
                self._remove_temporary(temporary)
                return False
        except OSError as e:
            is_refused = e.errno in _NO_LINKS | _LASTING | _FULL  # else a server may have created the link
            if is_refused:
                self._remove_temporary(temporary)
            advice = _no_links(path) if e.errno in _NO_LINKS else ""
            _fail(f"creating {path}", e, advice, may_have_happened=not is_refused)
        # The temporary name stays if the sync fails: readers then know that the object is not durable yet.
        self._sync_directory_of(path)
        self._remove_temporary(temporary)
        return True

    def replace(self, key: str, data: Payload) -> None:
        """Create an object, or replace the one there is."""
        path = self._path(key)
        self._rename(self._write(path, data), path)

    def change(self, key: str, changed: Change) -> bool:
        """Replace an object by what is made of it, if it is still what was read; see `Store.change`."""
        path, data = self._path(key), self.get(key)
        new = changed(data)
        if new is None:
            return True
        temporary = self._write(path, new)
        try:
            is_same: bool = self.get(key).equals(data)
        except StoreError as e:
            self._remove_temporary(temporary)
            if isinstance(e, ObjectMissingError):
                return False
            raise
        if is_same:
            self._rename(temporary, path)
        else:
            self._remove_temporary(temporary)
        return is_same

    def upload(self, key: str) -> DirectoryUpload:
        """Begin an object of any size, which is written in parts."""
        path = self._path(key)
        with _naming(f"creating {path}"):
            return DirectoryUpload(self, path, self._open_temporary(path))

    def get(self, key: str) -> pa.Buffer:
        """Return an object, whole; see `Store.get`."""
        return self._read(key, 0, None)

    def get_range(self, key: str, start: int, end: int) -> pa.Buffer:
        """Return the bytes from ``start`` to before ``end``; see `Store.get_range`."""
        return self._read(key, start, end)

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is no error. The directories above it stay."""
        path = self._path(key)
        try:
            others = self._other_names(path) if os.lstat(path).st_nlink > 1 else []
            os.unlink(path)
        except OSError as e:
            if e.errno not in _MISSING:
                _fail(f"deleting {path}", e)
            return
        for temporary in others:
            self._remove_temporary(temporary)

    def _other_names(self, path: Path) -> list[Path]:
        """Return the temporary names that an object still has, since its own may not be durable.

        Only as long as the object is there can no other file, which is being written, have its inode.
        """
        with contextlib.suppress(StoreError):  # what stays is swept later
            found = [path.parent / entry.name for entry in _entries(path.parent) if entry.name.startswith(_TEMPORARY)]
            return [temporary for temporary in found if _is_same_file(temporary, path)]
        return []

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with ``prefix``, in any order."""
        waiting = [prefix.rpartition("/")[0]]
        while waiting:
            directory = waiting.pop()
            for entry in _entries(self._root / directory):
                key = f"{directory}/{entry.name}".lstrip("/")
                if entry.name.startswith(_TEMPORARY):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                        waiting.append(key)
                elif key.startswith(prefix) and entry.is_file(follow_symlinks=False):
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                    except OSError as e:
                        _fail(f"listing {entry.path}", e)
                    yield ObjectInfo(key, found.st_size, found.st_mtime)

    def folders(self) -> Iterator[str]:
        """Yield the names right under the root under which there may be objects, in any order."""
        return (entry.name for entry in _entries(self._root) if entry.is_dir())

    def remove_made(self) -> None:
        """Remove the directories that this store has created and nothing is in, as after a test of the store."""
        with self._preparing:
            self._prepared.difference_update(self._made)
            while self._made:
                with contextlib.suppress(StorageError):
                    self._fs.remove_directory(self._made.pop())

    def _path(self, key: str) -> Path:
        """Return the file of a key.

        Raises:
            StoreError: a file can't have this name.
        """
        parts = key.split("/")
        if any(part in ("", ".", "..") or part.startswith(_TEMPORARY) or "\0" in part for part in parts):
            raise StoreError(
                f"{key!r} can't be the key of an object in a directory: leave out empty parts, {'.'!r}, {'..'!r} and "
                f"names that begin with {_TEMPORARY!r}",
                may_have_happened=False,
                is_lasting=True,
            )
        return self._root.joinpath(*parts)

    def _write(self, path: Path, data: Content) -> Path:
        """Write a synced temporary file beside a path and return where it is."""
        with _naming(f"creating {path}"):
            file = self._open_temporary(path)
            try:
                file.write(0, data if isinstance(data, list) else [data])
                file.sync()
            except BaseException:
                self._remove_temporary(file.path)
                raise
            finally:
                file.close()
            return file.path

    def _open_temporary(self, path: Path) -> File:
        """Create a temporary file beside a path, and its directory where that is missing."""
        for attempt in range(_ATTEMPTS):
            temporary = path.with_name(_new_temporary())
            try:
                self._prepare(path.parent)
                return self._fs.open(temporary, create=True, exclusive=True)
            except StorageError as e:
                is_gone = isinstance(e.__cause__, FileNotFoundError)
                if not is_gone or attempt == _ATTEMPTS - 1:
                    raise
                with self._preparing:
                    self._prepared.discard(path.parent)
        raise AssertionError("every attempt returns or raises")

    def _prepare(self, directory: Path) -> None:
        """Make a directory durable, with those above it, and sweep it, when this store first writes to it.

        The process that created it may have been killed before it synced the directory above.
        """
        if directory in self._prepared:
            return
        with self._preparing:
            if directory not in self._prepared:
                missing = [path for path in (directory, *directory.parents) if not os.path.exists(path)]
                self._made += reversed(missing)
                self._fs.make_directory(directory)
                self._fs.sync_parents(directory / _TEMPORARY)
                self._sweep(directory)
                self._prepared.add(directory)

    def _sweep(self, directory: Path) -> None:
        """Remove temporary files that crashes left long ago."""
        for name in self._fs.list_files(directory):
            if name.startswith(_TEMPORARY):
                with contextlib.suppress(OSError, StorageError):
                    if time.time() - self._fs.modified_seconds(directory / name) > _KEPT_SECONDS:
                        self._fs.sync_directory(directory)  # it may have become an object whose name is not durable
                        self._fs.remove(directory / name)

    def _rename(self, temporary: Path, path: Path) -> None:
        """Give a synced temporary file its name, and make the name durable.

        Until then it has a temporary name besides, which tells readers that it is not.
        """
        kept = path.with_name(_new_temporary())
        try:
            with _naming(f"writing {path}"):
                self._link(temporary, kept)
                self._fs.rename(temporary, path)
        except StoreError:
            self._remove_temporary(temporary)
            self._remove_temporary(kept)
            raise
        self._sync_directory_of(path)
        self._remove_temporary(kept)

    def _link(self, temporary: Path, kept: Path) -> None:
        try:
            os.link(temporary, kept)
        except OSError as e:
            if isinstance(e, FileExistsError) and _is_same_file(temporary, kept):
                return
            _fail(f"writing {kept.parent}", e, _no_links(kept) if e.errno in _NO_LINKS else "")

    def _sync_directory_of(self, path: Path) -> None:
        """Make a new name durable; if that fails, nobody knows whether it is."""
        with _naming(f"making {path} durable", may_have_happened=True):
            self._fs.sync_directory(path.parent)

    def _remove_temporary(self, temporary: Path) -> None:
        """Remove a temporary file; one that stays is swept later."""
        with contextlib.suppress(StorageError):
            self._fs.remove(temporary)

    def _read(self, key: str, start: int, end: int | None) -> pa.Buffer:
        path = self._path(key)
        with _naming(f"reading {path}"):
            file = self._open(path)
            try:
                size_bytes = file.size()
                if file.link_count() > 1:
                    self._fs.sync_directory(path.parent)
                end = size_bytes if end is None else min(end, size_bytes)
                return file.read_buffer(start, max(0, end - start))
            finally:
                file.close()

    def _open(self, path: Path) -> File:
        """Open an object.

        Raises:
            ObjectMissingError: there is none now.
        """
        try:
            return self._fs.open(path, readonly=True)
        except FileNotFoundError:
            missing = True
        except StorageError as e:
            missing = _errno(e) in _MISSING or os.path.isdir(path)
            if not missing:
                raise
        raise ObjectMissingError(f"there is no object {path}")


class DirectoryUpload:
    """An object that is being written to a temporary file. Implements `Upload`; for one thread."""

    def __init__(self, store: DirectoryStore, path: Path, file: File) -> None:
        self._store = store
        self._path = path
        self._file = file
        self._size_bytes = 0

    def write(self, data: Payload) -> None:
        """Append bytes; see `Upload.write`."""
        with _naming(f"writing {self._path}"):
            self._size_bytes += self._file.write(self._size_bytes, [data])

    def finish(self) -> None:
        """Make the object; see `Upload.finish`."""
        with _naming(f"writing {self._path}"):
            self._file.sync()
            self._file.close()
        self._store._rename(self._file.path, self._path)

    def discard(self) -> None:
        """Remove the temporary file, unless it has become the object; never raises."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._store._remove_temporary(self._file.path)


def remove_made(store: Store) -> None:
    """Remove the directories that a store has created and nothing is in; only one in a directory has any."""
    if isinstance(store, DirectoryStore):
        store.remove_made()


def _new_temporary() -> str:
    return f"{_TEMPORARY}{secrets.token_hex(8)}"


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """Return what is in a directory; nothing if it is missing."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as e:
        if e.errno in _MISSING:
            return []
        _fail(f"listing {directory}", e)


@contextlib.contextmanager
def _naming(what: str, *, may_have_happened: bool = False) -> Iterator[None]:
    """Turn what the file system raises into a `StoreError` that says what was tried."""
    try:
        yield
    except StoreError:
        raise
    except (StorageError, ChannelClosedError) as e:  # closed: an upload that a fork left in the parent
        if isinstance(e.__cause__, OSError):
            _fail(what, e.__cause__, may_have_happened=may_have_happened)
        raise StoreError(f"{what} failed: {e}", may_have_happened=may_have_happened) from e


def _fail(what: str, e: OSError, advice: str = "", *, may_have_happened: bool = False) -> NoReturn:
    text = advice or {
        errno.ENOSPC: "the file system is full: make room there",
        errno.EDQUOT: "the quota is used up: make room there",
        errno.EACCES: "this user has no permission: use the user that created the directory, or another directory",
        errno.EROFS: "the file system is read-only: mount it so that it can be written",
        errno.ENAMETOOLONG: "the name is too long for the file system: use shorter names",
    }.get(e.errno or 0, e.strerror or str(e))
    said = f"{what} failed: {text} (errno {e.errno})"
    if e.errno in _FULL and not may_have_happened:
        raise StoreFullError(said) from e
    is_lasting = bool(advice) or e.errno in _LASTING
    raise StoreError(said, may_have_happened=may_have_happened, is_lasting=is_lasting) from e


def _no_links(path: Path) -> str:
    return (
        f"the file system of {path.parent} makes no hard links, which only one of several writers can make: use another"
    )


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _errno(e: BaseException) -> int:
    return (e.__cause__.errno or 0) if isinstance(e.__cause__, OSError) else 0
