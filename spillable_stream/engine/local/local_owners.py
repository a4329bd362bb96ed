"""The owners of groups on this host. A group's owner holds a lock file, which the kernel frees when its process dies.

The file has a note about the owner, or about the last one. The only way to ask the kernel whether somebody holds the
lock is to share it for a moment. A consumer that comes just then waits that moment out (`FileLock.acquire_alone`), and
is not refused for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.group_owners import OwnerSeen
from spillable_stream.engine.groups import existing_group, has_stayed
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.local.position_hint import PositionHint
from spillable_stream.engine.owner_note import new_note, note_with, said_owner
from spillable_stream.engine.process_owners import ProcessOwner, is_of_this_process, refusal_here
from spillable_stream.errors import CommitOutcomeUnknownError, GroupOwnedError, SpillableError, StorageError
from spillable_stream.log.layout import Layout, require_name_of_lock
from spillable_stream.names import is_name
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock, has_ended, holder_text
from spillable_stream.storage.lru import LruCache

__all__ = ["LocalGroupHold", "LocalOwners", "LocalOwnership", "look_for_owner", "remove_files_of"]

_CHANGE_SECONDS = 1.0  # for which a change of a group, which is one commit, is waited for


class LocalOwnership:
    """A group whose lock this handle holds: one file descriptor, as long as it owns the group. It is an `Ownership`.

    Args:
        group: the group's name.
        lock: its lock, held.
        note: what the lock's file says of this owner, and of no other.
        position: the file that keeps the group's position.
        former: what it said of the last one.
    """

    def __init__(self, group: str, lock: FileLock, note: str, position: PositionHint, former: str) -> None:
        self.note: str = note
        self.former: str = former
        self.position: PositionHint = position
        self.lost: GroupOwnedError | None = None
        self._group = group
        self._lock = lock
        self._owner = ProcessOwner(note)

    def require(self) -> None:
        """Prove that nobody else can own the group; the commit lock is held.

        Raises:
            GroupOwnedError: the lock file was removed, and somebody may have created another one; or this was closed.
        """
        if self._lock.file.is_closed():
            raise GroupOwnedError(
                f"this handle has given up the group {self._group!r}; its events are back in the queue"
            )
        if not self._lock.is_in_place():
            self.lost = GroupOwnedError(
                f"{self._lock.path}, which said that this handle owns the group {self._group!r}, was moved, removed or "
                "replaced; the events are back in the queue: roll back, and begin another take, which owns it again"
            )
            raise self.lost

    def write(self, note: str) -> None:
        """Write something else about the owner; without a sync, so it outlives the process and no loss of power."""
        self.note = note_with(self.note, note)
        self._lock.write_holder(self.note)

    def leave_note(self, note: str) -> None:
        self.write(note)
        with contextlib.suppress(StorageError):
            self._lock.file.sync()

    def forget_note(self) -> None:
        self._lock.file.sync()  # it has been written over

    def close(self) -> None:
        """Give the group up."""
        self.position.close()
        self._lock.close()
        self._owner.close()

    def leave(self) -> None:
        """In a forked child: close the files; the lock is the parent's."""
        self.close()


class LocalGroupHold:
    """A group that nobody owns while it is changed, since its lock is held for that. It is a `GroupHold`.

    Args:
        group: the group's name.
        lock: its lock, held.
        position: the file that keeps the group's position.
    """

    def __init__(self, group: str, lock: FileLock, position: PositionHint) -> None:
        self.position: PositionHint = position
        self._group = group
        self._lock = lock
        self._forgotten = ""

    @property
    def note(self) -> str:
        """What the last owner wrote about itself."""
        return self._lock.read_holder()

    def forget_note(self) -> None:
        self._forgotten = self._forgotten or self.note
        self._lock.blank_holder()
        self._lock.file.sync()

    def recall_note(self) -> None:
        """Write the note again that was forgotten: the change did not come to be, and the note still counts."""
        if self._forgotten:
            self._lock.unblank_holder(self._forgotten)

    def require(self) -> None:
        """Prove that nobody can own the group; the commit lock is held.

        Raises:
            GroupOwnedError: the lock file was removed, and somebody may have created another one.
        """
        if not self._lock.is_in_place():
            moved = f"{self._lock.path} was moved, removed or replaced during a seek of {self._group!r}; try again"
            raise GroupOwnedError(moved)


class LocalOwners:
    """The owners of the groups of a channel on this host. `GroupOwners` documents the verbs.

    Args:
        log: the channel's log.
        follower: its state.
        appender: holds the commit lock.
        position_files: the position files of this handle's groups that took last.
    """

    def __init__(self, log: LocalLog, follower: Follower, appender: Appender, position_files: LruCache[File]) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._position_files = position_files

    def own(self, group: str, timeout_seconds: float, note: str) -> LocalOwnership:
        full_note = new_note(note)
        self._log.require_in_place()
        lock = self._acquired(group, timeout_seconds)
        try:
            former = lock.read_holder()
            lock.write_holder(full_note)
            return LocalOwnership(group, lock, full_note, self._kept_position(group), former)
        except BaseException:
            lock.close()
            raise

    def _acquired(self, group: str, timeout_seconds: float) -> FileLock:
        """Return a group's lock, held; the file of an automatic group may go while it is waited for."""
        fs, layout = self._log.fs, self._log.layout
        require_name_of_lock(group)
        while True:
            lock = FileLock.open(fs, layout.group_lock(group))
            try:
                if not lock.acquire_alone(timeout_seconds):
                    owner = lock.read_holder()
                    here = refusal_here(group, layout.path, owner, ", take with it, or use another group")
                    raise here or GroupOwnedError(
                        f"the group {group!r} of {layout.path} is owned by {said_owner(owner) or 'another process'}; "
                        f"waited {timeout_seconds:g} s. Close its channel or stop it, or use another group, which gets "
                        "every event too",
                        owner,
                    )
                if lock.is_in_place():
                    return lock
            except BaseException:
                lock.close()
                raise
            lock.close()

    @contextlib.contextmanager
    def without_owner(
        self, group: str, otherwise: str = "", timeout_seconds: float = _CHANGE_SECONDS
    ) -> Iterator[LocalGroupHold]:
        fs, layout, follow, in_place = self._log.fs, self._log.layout, self._follower.follow, False
        require_name_of_lock(group)
        while not in_place:
            existing_group(follow(), group, layout.path)
            lock = FileLock.open(fs, layout.group_lock(group))
            position = self._kept_position(group)
            try:
                if not lock.acquire_alone(timeout_seconds):
                    raise self._owned(group, lock.read_holder(), otherwise)
                if in_place := lock.is_in_place():
                    if group not in follow().groups:  # it was dropped before the file was opened, which created it
                        remove_files_of(fs, layout, group)
                    before = existing_group(self._follower.state, group, layout.path).image()
                    hold = LocalGroupHold(group, lock, position)
                    try:
                        yield hold
                    except CommitOutcomeUnknownError:
                        raise
                    except BaseException as e:  # also an interrupt, which may come behind the change
                        if isinstance(e, SpillableError) or has_stayed(group, before, self._appender, self._follower):
                            hold.recall_note()
                        raise
            finally:
                position.close()
                lock.close()

    def _owned(self, group: str, owner: str, otherwise: str) -> GroupOwnedError:
        """Return the refusal of a change. One that another process makes for long leaves the last owner's note."""
        path = self._log.path
        if here := refusal_here(group, path, owner, otherwise):
            return here
        if not owner or has_ended(owner) or is_of_this_process(owner):
            return GroupOwnedError(
                f"another process or thread changes the group {group!r} of {path}, or owns it; try again"
            )
        said = f"the group {group!r} of {path} is owned by {said_owner(owner)}; stop it first{otherwise}"
        return GroupOwnedError(said, owner)

    def look(self, group: str) -> OwnerSeen:
        return look_for_owner(self._log.fs, self._log.layout, group)

    inquire = look  # a lock shows it

    def owner_of(self, group: str) -> str:
        try:
            return holder_text(self._log.fs.read_file(self._log.layout.group_lock(group)))
        except (FileNotFoundError, StorageError):
            return ""

    def wait_for_owner_to_go(self, group: str, owner: str, timeout_seconds: float) -> bool:
        """Wait until an owner has released its group or died, and tell whether it has.

        Args:
            group: the group's name.
            owner: what its owner wrote about itself (`Ownership.note`). Another one is not waited for.
            timeout_seconds: how long to wait at most.
        """
        lock = FileLock.open(self._log.fs, self._log.layout.group_lock(group))
        try:
            return lock.is_free_within(timeout_seconds if lock.read_holder() == owner else 0)
        finally:
            lock.close()

    def _kept_position(self, group: str) -> PositionHint:
        return PositionHint(self._log.fs, self._log.layout, group, self._position_files)

    def position_of(self, group: str) -> PositionHint:
        return PositionHint(self._log.fs, self._log.layout, group)

    def forget_former(self, group: str) -> None:
        with self._appender.committing():
            if group not in self._follower.state.groups:
                self.position_of(group).forget()

    def forget_files(self, group: str) -> None:
        remove_files_of(self._log.fs, self._log.layout, group)


def look_for_owner(fs: FileSystem, layout: Layout, group: str) -> OwnerSeen:
    """Look up who owns a group.

    Raises:
        StorageError: the lock file can't be read.
    """
    if not is_name(group):  # an old log's: it has no lock
        return OwnerSeen(is_alive=False, note="")
    try:
        lock = FileLock(fs.open(layout.group_lock(group), readonly=True))
    except FileNotFoundError:
        return OwnerSeen(is_alive=False, note="")
    try:
        note = lock.read_holder()  # first: an owner that comes in between is seen now, or by its note the next time
        return OwnerSeen(not lock.is_free_within(0), note)
    finally:
        lock.close()


def remove_files_of(fs: FileSystem, layout: Layout, group: str) -> None:
    """Remove the files of an automatic group that was dropped: there may be thousands, and few come again.

    The group's lock is held, exclusively. If the file system refuses, they stay, and nothing depends on them.
    """
    with contextlib.suppress(StorageError):
        for of_group in (layout.group_query, layout.group_position, layout.group_worker, layout.group_lock):
            fs.remove(of_group(group))
