"""Whose the files and directories are that a channel makes, and who may open them."""

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
    """Who may open what is made, whatever the umask says.

    Args:
        mode: the mode of directories; files have it without the bits for execution.
        group: the Unix group's ID that everything gets; None for the one that the system gives.
    """

    mode: int = PRIVATE_MODE
    group: int | None = None

    def open_or_make(self, path: Path, flags: int, *, exclusive: bool) -> int:
        """Open a file, made if it is missing, and return its descriptor.

        Raises:
            OSError: the system refused; also, with ``exclusive``, where the file is there.
        """
        owner = _other_owner(path.parent)
        while True:
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, self.mode & 0o666)
            except FileExistsError:
                if exclusive:
                    raise
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    return os.open(path, flags)
            else:
                try:
                    self._settle(descriptor, owner, self.mode & 0o666)
                except BaseException:
                    os.close(descriptor)
                    raise
                return descriptor

    def make_directory(self, path: Path, owner_of: Path | None = None) -> None:
        """Make a directory that is not there; until it has its group, nobody else may enter it.

        Args:
            path: the directory.
            owner_of: whose owner it gets, if root makes it; by default its parent's.
        """
        owner = _other_owner(owner_of or path.parent)
        os.mkdir(path, PRIVATE_MODE)
        if os.lstat(path).st_mode & 0o700 != 0o700:  # the umask took what opening it needs
            os.chmod(path, PRIVATE_MODE)
        self.settle_directory(path, owner)

    def settle_directory(self, path: Path, owner: tuple[int, int] | None = None) -> None:
        """Give a directory the mode and the group; ``owner``, a user and a group, too if that is not None."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._settle(descriptor, owner, self.mode)
        finally:
            os.close(descriptor)

    def _settle(self, descriptor: int, owner: tuple[int, int] | None, mode: int) -> None:
        """Change what the system gave a new file or directory, where that is not what it is to have."""
        found = os.fstat(descriptor)
        user, group = owner or (found.st_uid, found.st_gid)
        if self.group is not None:
            group = self.group
        if (user, group) != (found.st_uid, found.st_gid):
            os.fchown(descriptor, user, group)
        if found.st_mode & 0o777 != mode:
            os.fchmod(descriptor, mode | (found.st_mode & stat.S_ISGID))

    def trusts(self, found: os.stat_result, home: os.stat_result) -> bool:
        """Tell whether nobody but those who may write the channel can have made a directory, or can write it.

        Only a member of a group can give a directory to it.

        Args:
            found: the directory's status.
            home: that of the channel's directory.
        """
        if not stat.S_ISDIR(found.st_mode):
            return False
        if found.st_uid == home.st_uid and not found.st_mode & 0o077:
            return True
        return self.mode != PRIVATE_MODE and found.st_gid == home.st_gid and not found.st_mode & 0o777 & ~self.mode


def _other_owner(directory: Path) -> tuple[int, int] | None:
    """Return user and group of a directory if this process is root and the directory is somebody else's."""
    if os.geteuid() != 0:
        return None
    found = os.stat(directory)
    return (found.st_uid, found.st_gid) if found.st_uid else None
