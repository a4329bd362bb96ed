"""The directories of a channel: proves that they belong to it, and holds them.

Every handle that may write to a channel, parked or not, shares a lock on the owner file of each of its directories.
That has two uses. The head counts only while the channel is held without a break: **the first handle recovers from
the log**, whatever the head says. And a directory that is already held when the first handle arrives belongs to
another channel, or is shared with a copy.

A copy of a channel still names the original's directories outside the channel's own (``dataDirs`` on another disk).
So such a directory records its channel: the path and inode of the channel's directory, and a token. When a channel
was moved, all its directories get a new token. A directory that was left behind, or is restored from a backup, no
longer matches.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from spillable_stream.errors import (
    ChannelBusyError,
    ChannelClosedError,
    DiskSpaceError,
    ForeignDirectoryError,
)
from spillable_stream.log.claim import make_missing, own_backup
from spillable_stream.log.directory_ownership import (
    is_outside,
    ownership_fault,
    whereabouts,
)
from spillable_stream.log.layout import CHECKPOINT, Layout
from spillable_stream.log.owner_file import BACKUP, HOME, OWNER_FILE, DirectoryOwner, parse_owner, write_owner
from spillable_stream.log.unproven_directories import repair_advice
from spillable_stream.log_records import fields, log_of
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["Directories", "out_of_place"]

_log = log_of(__name__)

_LEAVING_SECONDS = 0.2  # a killed process releases its locks one by one


def out_of_place(layout: Layout, directory: Path) -> ChannelClosedError:
    """Return what is said of a directory of an open channel that its path leads to no more."""
    what = "it" if directory == layout.path else f"the channel {layout.path}"
    return ChannelClosedError(
        f"{directory} was moved, removed or replaced, or its disk unmounted, while {what} was open; close the handle, "
        "and open the channel where it is now"
    )


class Directories:
    """The directories that one handle holds.

    `try_first` or `try_join` locks the channel's own directory, then `prove` locks the others.
    """

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._layout = layout
        self._home: FileLock | None = None
        self._others: dict[str, FileLock] = {}
        self._is_exchanged = False

    def try_first(self) -> bool:
        """Hold the channel alone if no other handle holds it, and tell whether this one does now.

        Raises:
            ForeignDirectoryError: the channel's directory has no owner file.
        """
        return self._try(shared=False)

    def try_join(self) -> bool:
        """Hold the channel with other handles unless one holds it alone, and tell whether this one does now.

        Raises:
            ForeignDirectoryError: the channel's directory has no owner file.
        """
        return self._try(shared=True)

    def _try(self, *, shared: bool) -> bool:
        while True:
            home = self._home = self._open(HOME, self._layout.path)  # from here on `close` releases it
            held = home.try_acquire(shared=shared)
            if held and home.is_in_place():
                return True
            home.close()
            self._home = None
            if not held:
                return False
            # another process recorded a move and replaced the owner file: try the new one

    def _open(self, role: str, directory: Path) -> FileLock:
        try:
            return FileLock.open(self._fs, directory / OWNER_FILE, create=False)
        except FileNotFoundError as e:
            raise self._foreign(role, directory, f"it has no {OWNER_FILE}") from e

    def _foreign(self, role: str, directory: Path, why: str) -> ForeignDirectoryError:
        what = f"the directory {directory}"
        if role != HOME:
            what = f"the {role.partition('-')[0]} directory {directory} of the channel {self._layout.path}"
        advice = repair_advice(self._fs, self._layout)
        return ForeignDirectoryError(f"{what} is not proven to be this channel's: {why}. {advice}")

    # ── proving ─────────────────────────────────────────────────────────────────────────────────

    def prove(self, *, first: bool) -> None:
        """Prove that every directory belongs to this channel, and hold it.

        Args:
            first: whether `try_first` succeeded: then no other handle may hold any of them.

        Raises:
            ForeignDirectoryError: one is missing, or belongs to another channel or to the original of this copy.
            ChannelBusyError: another copy of this channel holds one.
        """
        assert self._home is not None
        owner = self._read(HOME, self._home)
        moved = False
        if first:
            make_missing(self._fs, self._layout, owner)
        for role, directory in self._layout.directories().items():
            lock = self._others[role] = self._open(role, directory)
            if not lock.acquire(_LEAVING_SECONDS, shared=not first):
                raise ChannelBusyError(
                    f"{directory} is held by another copy of {self._layout.path}; close it there first"
                )
            found = self._read(role, lock)
            if self._is_outside(directory):
                moved = self._prove_outside(role, directory, found, owner) or moved
            elif found.token not in owner.tokens():
                self._is_exchanged = True
        if first and (moved or owner.next or (owner.home, owner.inode) != self._here()):
            self._take_along(owner)
        if first:
            self._share_others()

    def _read(self, role: str, lock: FileLock) -> DirectoryOwner:
        """Return the record in a locked owner file.

        Raises:
            ForeignDirectoryError: it is damaged, or names another channel or role.
        """
        directory = lock.path.parent
        try:
            found = parse_owner(directory, lock.file.read(0, lock.file.size()))
        except ForeignDirectoryError as e:
            raise self._foreign(role, directory, f"its {OWNER_FILE} can't be read") from e
        fault = ownership_fault(self._fs, self._layout, role, directory, found, None)
        if fault is not None:
            raise self._foreign(role, directory, fault)
        return found

    def _is_outside(self, directory: Path) -> bool:
        return is_outside(self._fs, self._layout, directory)

    def _prove_outside(self, role: str, directory: Path, found: DirectoryOwner, owner: DirectoryOwner) -> bool:
        """Prove that an outside directory belongs to this channel, and tell whether the channel has moved since.

        Raises:
            ForeignDirectoryError: it belongs to another channel or copy.
        """
        if (fault := ownership_fault(self._fs, self._layout, role, directory, found, owner)) is not None:
            raise self._foreign(role, directory, fault)
        return (found.home, found.inode) != self._here()

    def _here(self) -> tuple[str, int]:
        return whereabouts(self._fs, self._layout)

    def settle(self) -> None:
        """Give all directories a new token if one inside of the channel has another: the log has proven that one.

        It was exchanged, such as by a disk that is mounted again. The one in its place before fits no more from now on.
        A full disk leaves that to the next open: takes may make room there.
        """
        if self._is_exchanged and self._home is not None:
            try:
                self._take_along(self._read(HOME, self._home), with_exchanged=True)
            except DiskSpaceError as e:
                if not self.are_in_place():
                    raise
                path = self._layout.path
                _log.warning(
                    "the directories of %s keep their tokens until the next open: %s", path, e, extra=fields(path)
                )
            self._share_others()
            self._is_exchanged = False

    def _take_along(self, owner: DirectoryOwner, *, with_exchanged: bool = False) -> None:
        """Record the channel's new place in its outside directories, and its new token in all of them.

        No other handle holds any of them. The channel's own directory records the new token before they do, and keeps
        the old one until all have it, so that a crash in between is recoverable.
        """
        _log.info("%s was moved, copied or restored", self._layout.path, extra=fields(self._layout.path))
        self._fs.sync_parents(self._layout.path)  # whatever moved it may not have synced the path
        (home, inode), token = self._here(), owner.next or uuid.uuid4().hex
        moving = replace(owner, next=token, home=home, inode=inode)
        moved = replace(moving, token=token, next="")
        self._write_home(moving)
        for role, directory in self._layout.directories().items():
            new = moved.of(role)
            found = self._read(role, self._others[role])
            if self._is_outside(directory):
                self._fs.sync_parents(directory)
            elif with_exchanged or found.token in owner.tokens():
                new = replace(found, token=token, next="")  # it still says where the channel was copied from
            else:
                continue
            write_owner(self._fs, directory, new)
            self._others[role].close()
            self._others[role] = self._open(role, directory)
            self._require_alone(self._others[role])
        own_backup(self._fs, self._layout, moved.of(BACKUP), owner)
        self._write_home(moved)

    def _write_home(self, owner: DirectoryOwner) -> None:
        """Replace the owner file of the channel's own directory, and hold the new one alone."""
        write_owner(self._fs, self._layout.path, owner)
        if self._home is not None:
            self._home.close()
        self._home = self._open(HOME, self._layout.path)
        self._require_alone(self._home)

    def _require_alone(self, lock: FileLock) -> None:
        """Lock an owner file that was just written.

        Raises:
            ChannelBusyError: another handle was faster.
        """
        if not lock.try_acquire():
            raise ChannelBusyError(f"{lock.path.parent} is being opened by another process; try again")

    def _share_others(self) -> None:
        """Let other handles hold the directories too; the channel's own is what this one still holds alone."""
        for lock in self._others.values():
            lock.share()

    def share(self) -> bool:
        """Share the channel after holding it alone; false if another handle took it alone in between."""
        return self._home is not None and self._home.share() and self._home.is_in_place()

    # ── while they are held ─────────────────────────────────────────────────────────────────────

    def are_in_place(self) -> bool:
        """Tell whether the paths of all directories still lead to the directories that are held."""
        return self._misplaced(self._others) is None

    def require_in_place(self, *, checkpoint: bool = False) -> None:
        """Prove that the paths of the directories still lead to the directories that are held.

        Args:
            checkpoint: check the checkpoint directory too; commits do not need it.

        Raises:
            ChannelClosedError: one was moved, removed or replaced.
        """
        roles = [role for role in self._others if checkpoint or role != CHECKPOINT]
        if (directory := self._misplaced(roles)) is not None:
            raise out_of_place(self._layout, directory)

    def _misplaced(self, roles: Iterable[str]) -> Path | None:
        if self._home is None:
            return self._layout.path
        locks = (self._home, *(self._others[role] for role in roles))
        return next((lock.path.parent for lock in locks if not lock.is_in_place()), None)

    def close(self) -> None:
        """Release all directories."""
        for lock in self._others.values():
            lock.close()
        self._others = {}
        if self._home is not None:
            self._home.close()
            self._home = None
