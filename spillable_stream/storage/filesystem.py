"""The file system: the few operations on files and directories that the log needs.

`FileSystem` is the real one. Tests substitute file systems that fail, record or lose writes.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import stat
from pathlib import Path

from spillable_stream.arguments import instance
from spillable_stream.durable_names import sync_directory, sync_names
from spillable_stream.errors import StorageError
from spillable_stream.forks import forking
from spillable_stream.storage.access import PRIVATE_MODE, Access
from spillable_stream.storage.file import File, named
from spillable_stream.storage.file_identity import FileIdentity, identity_of

__all__ = ["A_DIRECTORY", "A_FILE", "A_LINK", "FileSystem", "given_file_system"]

A_FILE, A_DIRECTORY, A_LINK = "a file", "a directory", "a symbolic link"
"""Kinds of what may be at a path."""

_MEMORY_TYPES = {"tmpfs", "ramfs"}

_IMPOSSIBLE = {
    errno.ELOOP: "its symbolic links lead in a circle",
    errno.ENAMETOOLONG: "it, or a name in it, is too long for the file system",
    errno.ENOTDIR: "it, or a part of it, is a file and not a directory",
}

_KINDS = {
    stat.S_IFREG: A_FILE,
    stat.S_IFDIR: A_DIRECTORY,
    stat.S_IFLNK: A_LINK,
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


class FileSystem:
    """The operating system's files.

    Its methods raise `StorageError` if the system refuses.

    Attributes:
        access: the owner, group and mode of new files and directories.
    """

    access: Access = Access()

    def open(self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> File:
        """Open a file for reading, and for writing unless ``readonly``. A symbolic link is refused.

        A file that root creates belongs to the owner of its directory, who would otherwise be locked out.

        Args:
            path: the file.
            create: create the file if it is missing; its directory still needs a sync.
            exclusive: with ``create``, fail if the file exists.
            readonly: open the file for reading only.

        Raises:
            FileNotFoundError: the file is missing and ``create`` is not set.
            StorageError: any other failure, such as a pipe at this path.
        """
        flags = (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_NONBLOCK  # opening a planted pipe must not wait for its other end
        opened: list[int] = []
        closing = map(os.close, opened)
        try:
            with named("creating" if create else "opening", path, may_be_missing=not create):
                with forking:
                    if create:
                        self.access.open_or_make(path, flags, opened, exclusive=exclusive)
                    else:
                        opened.extend(map(os.open, (path,), (flags,)))
                    file = File(path, opened[0], closing)
                if not stat.S_ISREG(os.fstat(opened[0]).st_mode):
                    raise OSError(errno.EINVAL, "it is not a regular file")
                return file
        except BaseException:  # also an interrupt, between any two calls
            next(closing, None)
            raise

    def list_files(self, directory: Path) -> list[str]:
        """Return the names of files and of all symbolic links in a directory, sorted; none if it is missing."""
        with named("listing", directory):
            try:
                with os.scandir(directory) as entries:
                    return sorted(e.name for e in entries if e.is_symlink() or e.is_file())
            except FileNotFoundError:
                return []

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; none if it is missing."""
        with named("listing", directory):
            try:
                return sorted(os.listdir(directory))
            except FileNotFoundError:
                return []

    def list_directories(self, directory: Path) -> builtins.list[str]:
        """Return the names of directories in a directory, without links to some, sorted; none if it is missing."""
        with named("listing", directory):
            try:
                with os.scandir(directory) as entries:
                    return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
            except FileNotFoundError:
                return []

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory exists."""
        return os.path.exists(path)

    def is_file(self, path: Path) -> bool:
        """Tell whether a path leads to a regular file."""
        return os.path.isfile(path)

    def kind(self, path: Path) -> str:
        """Return what is at a path itself, in words, such as "a file" or "a symbolic link"; "" if nothing is."""
        with named("looking at", path):
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                return ""
        return _KINDS.get(stat.S_IFMT(mode), "a device")

    def why_impossible(self, path: Path) -> str:
        """Return why nothing can be at a path, in words; "" if something is there, or may be."""
        try:
            os.stat(path)
        except OSError as e:
            return _IMPOSSIBLE.get(e.errno or 0, "")
        return ""

    def size_bytes(self, path: Path) -> int:
        """Return the size of a file in bytes; 0 if it is missing."""
        with named("looking at", path):
            try:
                return os.stat(path).st_size
            except FileNotFoundError:
                return 0

    def modified_seconds(self, path: Path) -> float:
        """Return when a file was last written, in seconds since 1970.

        Raises:
            FileNotFoundError: the file is missing.
        """
        with named("looking at", path, may_be_missing=True):
            return os.stat(path).st_mtime

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents, and sync the parent of each."""
        if os.path.isdir(path):
            return
        with named("creating the directory", path):
            self.make_directory(path.parent)
            try:
                self.access.make_directory(path)
            except FileExistsError:  # another process was faster, or it is a file
                _require_directory(path)
        self.sync_directory(path.parent)

    def require_place(self, path: Path) -> None:
        """Prove, as far as permissions say, that a directory can be written, or can be created; create nothing.

        Raises:
            StorageError: it can't.
        """
        with named("creating the directory", path):
            there = next(p for p in (path, *path.parents) if os.path.lexists(p))
            _require_directory(there)
            if not os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
                number = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
                raise OSError(number, os.strerror(number))

    def share_directory(self, path: Path) -> None:
        """Set the channel's mode and group on a directory older than the channel; a no-op for a private channel."""
        if self.access.mode != PRIVATE_MODE:
            with named("changing the mode of", path):
                self.access.settle_directory(path)

    def group_of(self, path: Path) -> int:
        """Return the ID of the Unix group that owns a file or directory."""
        with named("looking at", path):
            return os.stat(path).st_gid

    def sync_parents(self, path: Path, done: Path | None = None) -> None:
        """Sync the directories above a path, so that the path itself survives a crash.

        The process that created them may have been killed before it synced them. The walk ends at a mount point, or at
        a directory that this process may not or cannot sync: those above belong to others.

        Args:
            path: the path.
            done: a path whose parents are synced; where the walk comes to it, it is the last.
        """
        path, done = self.real_path(path), done and self.real_path(done)
        sync_names(path, self.sync_directory, lambda directory: directory == done and directory != path)

    def sync_directory(self, path: Path) -> None:
        """Return once the directory's entries are on the medium."""
        with named("syncing the directory", path):
            sync_directory(path)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a file so that a crash leaves either the old or the new one; for one caller at a time."""
        temporary = path.with_name(f"{path.name}.tmp")
        self.remove(temporary)
        file = self.open(temporary, create=True, exclusive=True)
        try:
            try:
                file.write(0, [data])
                file.sync()
            finally:
                file.close()
            self.rename(temporary, path)
        except StorageError:
            with contextlib.suppress(StorageError):
                self.remove(temporary)
            raise
        self.sync_directory(path.parent)

    def copy_durably(self, source: Path, target: Path) -> int:
        """Copy a file, sync the copy and its directory, and return its size in bytes; for one caller at a time.

        The copy gets its name only after its sync. A file with that name is therefore whole and durable; a failure or
        a kill leaves at most a temporary file.
        """
        temporary = target.with_name(f"{target.name}.tmp")
        self.remove(temporary)
        original = self.open(source, readonly=True)
        try:
            end = original.size()
            copy = self.open(temporary, create=True, exclusive=True)
            try:
                copy.copy_from(original, end)
                copy.sync()
            finally:
                copy.close()
            self.rename(temporary, target)
            self.sync_directory(target.parent)
        except BaseException:
            for path in (temporary, target):  # remove the target too: its name may not be durable
                with contextlib.suppress(StorageError):
                    self.remove(path)
            raise
        finally:
            original.close()
        return end

    def read_file(self, path: Path) -> bytes:
        """Return the content of a small file."""
        file = self.open(path, readonly=True)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing any at ``target``; the directory still needs a sync."""
        with named("renaming", source):
            os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        with named("removing", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def link(self, path: Path, target: Path) -> None:
        """Create a symbolic link at ``path``, replacing any there; the directory still needs a sync."""
        temporary = path.with_name(f"{path.name}.tmp")
        self.remove(temporary)
        with named("linking", path):
            os.symlink(target, temporary)
        self.rename(temporary, path)

    def link_target(self, path: Path) -> Path | None:
        """Return the target of a symbolic link; None if the path is not one."""
        try:
            return Path(os.readlink(path))
        except OSError:
            return None

    def identity(self, path: Path) -> FileIdentity:
        """Return the identity of a file or directory, which its copies do not share.

        Raises:
            FileNotFoundError: the path leads nowhere.
        """
        with named("looking at", path, may_be_missing=True):
            return identity_of(os.fsencode(path))

    def real_path(self, path: Path) -> Path:
        """Return the path without symbolic links."""
        return Path(os.path.realpath(path))

    def make_private_directory(self, path: Path, owner_of: Path) -> None:
        """Create a directory that must not exist yet; it needs no sync.

        Args:
            path: the directory.
            owner_of: if this process is root, the directory gets the owner of this path.
        """
        with named("creating the directory", path):
            self.access.make_directory(path, owner_of)

    def is_private_directory(self, path: Path, owner_of: Path) -> bool:
        """Tell whether a path is a directory, not a link, that only those who may write ``owner_of`` can write to."""
        try:
            return self.access.trusts(os.lstat(path), os.stat(owner_of))
        except OSError:
            return False

    def is_in_memory(self, path: Path) -> bool:
        """Tell whether a path is on a file system in memory, such as tmpfs; False if the system does not say.

        Such a file system needs no sync: either all that was written to it is there, or all of it is gone.
        """
        try:
            device = os.stat(path).st_dev
            mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        except OSError:
            return False
        number = f"{os.major(device)}:{os.minor(device)}"
        return any(m.split()[2] == number and m.partition(" - ")[2].split()[0] in _MEMORY_TYPES for m in mounts)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory. A directory that is not empty stays; a missing one is fine.

        A directory in ``/dev/shm`` that another member of the channel's group created stays too, empty: only its owner
        may remove it.
        """
        kept = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}
        if self.access.mode != PRIVATE_MODE:
            kept |= {errno.EPERM, errno.EACCES}
        with named("removing", path):
            try:
                os.rmdir(path)
            except OSError as e:
                if e.errno not in kept:
                    raise

    def free_bytes(self, path: Path) -> int:
        """Return the free space, in bytes, of the file system that holds ``path``."""
        with named("reading the free space of", path):
            found = os.statvfs(path)
            return found.f_bavail * found.f_frsize

    def total_bytes(self, path: Path) -> int:
        """Return the size, in bytes, of the file system that holds ``path``."""
        with named("reading the size of the file system of", path):
            found = os.statvfs(path)
            return found.f_blocks * found.f_frsize


def _require_directory(path: Path) -> None:
    """Prove that what is at a path is a directory.

    Raises:
        OSError: it is not.
    """
    if not os.path.isdir(path):
        is_file = os.path.exists(path)
        raise OSError(errno.ENOTDIR, f"{path} is a {'file' if is_file else 'link that leads nowhere'}")


def given_file_system(fs: FileSystem | None) -> FileSystem:
    """Return the file system that a caller gave, or the operating system's if it gave none.

    Raises:
        OptionError: it is not a file system.
    """
    return FileSystem() if fs is None else instance("fs", fs, FileSystem)
