"""Owner, group and mode of the files and directories that a channel creates."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PRIVATE_MODE", "Access"]

PRIVATE_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Access:
    """The permissions of new files and directories, regardless of the umask.

    Args:
        mode: the mode of directories; files get it without the execute bits.
        group: the ID of the Unix group that owns everything; None for the system's default.
    """

    mode: int = PRIVATE_MODE
    group: int | None = None

    def open_or_make(self, path: Path, flags: int, opened: list[int], *, exclusive: bool) -> None:
        """Open a file, created if missing.

        Args:
            path: the file.
            flags: how to open it.
            opened: gets its descriptor, in the call that opens it: no interrupt comes between. The caller closes it.
            exclusive: whether a file that exists is refused.

        Raises:
            OSError: the system refused, or the file exists and ``exclusive`` is set.
        """
        owner = _other_owner(path.parent)
        while True:
            try:
                opened.extend(map(os.open, (path,), (flags | os.O_CREAT | os.O_EXCL,), (self.mode & 0o666,)))
            except FileExistsError:
                if exclusive:
                    raise
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    opened.extend(map(os.open, (path,), (flags,)))
                    return
            else:
                self._settle(opened[0], owner, self.mode & 0o666)
                return

    def make_directory(self, path: Path, owner_of: Path | None = None) -> None:
        """Create a directory. It is closed to other users until it has its group.

        Args:
            path: the directory; it must not exist.
            owner_of: if this process is root, the directory gets the owner of this path; by default, of its parent.

        Raises:
            OSError: the directory exists, or the system refused.
        """
        owner = _other_owner(owner_of or path.parent)
        os.mkdir(path, PRIVATE_MODE)
        if os.lstat(path).st_mode & 0o700 != 0o700:  # the umask removed bits that opening it needs
            os.chmod(path, PRIVATE_MODE)
        self.settle_directory(path, owner)

    def settle_directory(self, path: Path, owner: tuple[int, int] | None = None) -> None:
        """Set the mode and the group of a directory, and its owner.

        Args:
            path: the directory.
            owner: the IDs of a user and a group; None to keep the owner.

        Raises:
            OSError: the system refused, or the path is not a directory.
        """
        opened: list[int] = []
        closing = map(os.close, opened)
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.extend(map(os.open, (path,), (flags,)))  # in one call, as `open_or_make`
            self._settle(opened[0], owner, self.mode)
        finally:
            next(closing, None)

    def _settle(self, descriptor: int, owner: tuple[int, int] | None, mode: int) -> None:
        """Change owner, group and mode of a new file or directory, each only if the system's default is wrong."""
        found = os.fstat(descriptor)
        user, group = owner or (found.st_uid, found.st_gid)
        if self.group is not None:
            group = self.group
        if (user, group) != (found.st_uid, found.st_gid):
            os.fchown(descriptor, user, group)
        if found.st_mode & 0o777 != mode:
            os.fchmod(descriptor, mode | (found.st_mode & stat.S_ISGID))

    def trusts(self, found: os.stat_result, home: os.stat_result) -> bool:
        """Tell whether only users who may write the channel can have created a directory and can write to it.

        Only a member of a group can give a directory to that group, so the group proves the creator.

        Args:
            found: the directory's status.
            home: the status of the channel's directory.
        """
        if not stat.S_ISDIR(found.st_mode):
            return False
        if found.st_uid == home.st_uid and not found.st_mode & 0o077:
            return True
        return self.mode != PRIVATE_MODE and found.st_gid == home.st_gid and not found.st_mode & 0o777 & ~self.mode


def _other_owner(directory: Path) -> tuple[int, int] | None:
    """Return the user and group IDs of a directory if this process is root and another user owns it; else None."""
    if os.geteuid() != 0:
        return None
    found = os.stat(directory)
    return (found.st_uid, found.st_gid) if found.st_uid else None
