"""The owners of a channel's groups, wherever that is recorded.

A group has one owner at a time, and only its owner takes as the group. Whoever is one proves it again with each commit
(`Ownership.require`), where it is planned: so one that lost its group without a notice commits nothing any more.

`spillable_stream.engine.local.local_owners` has the owners of a channel on this host.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from spillable_stream.errors import GroupOwnedError
from spillable_stream.state.channel_state import ChannelState

__all__ = ["GroupHold", "GroupOwners", "KeptPosition", "OwnerSeen", "Ownership"]


class OwnerSeen(NamedTuple):
    """What a look at a group found.

    Args:
        is_alive: whether somebody owns the group now.
        note: what the last owner wrote about itself (`Ownership.note`); "" if nobody has owned the group.
    """

    is_alive: bool
    note: str


class KeptPosition(Protocol):
    """A record of what a group has taken, kept beside the log for the day that a part of the log is lost."""

    def keep(self, state: ChannelState) -> None:
        """Record what the group has taken by a state with a memory tier; the commit lock is held."""

    def forget(self) -> None:
        """Forget what was recorded, durably: the group begins anew, goes elsewhere, or is no more.

        Raises:
            StorageError: the storage refused.
        """

    def close(self) -> None:
        """Close what is open; another `keep` opens it again."""


class GroupHold(Protocol):
    """A group that nobody else owns."""

    @property
    def note(self) -> str:
        """Return the note about its owner: this one, or the last one where nobody owns it."""

    @property
    def position(self) -> KeptPosition | None:
        """Where its position is kept beside the log; None where no part of the log can be lost."""

    def require(self) -> None:
        """Prove that still nobody else can own the group; the commit lock is held, and the state is up to date.

        Raises:
            GroupOwnedError: somebody else may own it.
        """

    def forget_note(self) -> None:
        """Forget, durably, what any owner before wrote about itself: the group is dropped or moved right after that.

        What was noted of failures would count against events that come again. In a store the change itself does it.

        Raises:
            StorageError: the storage refused.
        """


class Ownership(GroupHold, Protocol):
    """A group that this handle owns."""

    @property
    def lost(self) -> GroupOwnedError | None:
        """Return what `require` raised, once it has: the group is another's, and this never owns it again."""

    @property
    def former(self) -> str:
        """Return what the last owner wrote about itself; in a store "" if it gave the group up and left none."""

    def write(self, note: str) -> None:
        """Write something else about the owner, after its process and the time.

        Raises:
            GroupOwnedError: another handle owns the group by now.
            StorageError: the storage refused.
        """

    def leave_note(self, note: str) -> None:
        """Write, at the end, what the next owner finds in ``former``. In a store `close` does so.

        Args:
            note: what comes after the owner's process and the time; "" for nothing.
        """

    def close(self) -> None:
        """Give the group up."""

    def leave(self) -> None:
        """In a forked child: leave the group to the parent, and only close what is open."""


class GroupOwners(Protocol):
    """The owners of a channel's groups. Thread-safe."""

    def own(self, group: str, timeout_seconds: float, note: str) -> Ownership:
        """Become a group's owner, whether the channel has the group or not.

        Commits of takes may be under way that a former owner, or another handle on its behalf, has begun. They are
        done, or will be refused, once the new owner has passed through `Appender.committing`.

        Args:
            group: the group's name.
            timeout_seconds: how long to wait for a former owner to go.
            note: what to write about the owner, after its process and the time.

        Raises:
            GroupOwnedError: another live consumer owns the group; names it.
            ChannelClosedError: the channel is not where it was.
            StorageError: the storage refused.
        """

    def without_owner(
        self, group: str, otherwise: str = "", timeout_seconds: float = ...
    ) -> AbstractContextManager[GroupHold]:
        """Keep an existing group without an owner within the block, which changes it.

        Args:
            group: the group's name.
            otherwise: what else a user may do about an owner, for the error.
            timeout_seconds: how long to wait for an owner to go, or for another change; each change is one commit.

        Raises:
            GroupOwnedError: a live consumer owns it, or another process or thread changes it.
            OptionError: the channel has no group of this name.
        """

    def look(self, group: str) -> OwnerSeen:
        """Look up who owns a group, without being in the way of an owner that comes just then.

        Raises:
            StorageError: that can't be read.
        """

    def inquire(self, group: str) -> OwnerSeen:
        """Look up who owns a group, and ask whether an owner that can't be seen lives: a later call may know it.

        Raises:
            StorageError: that can't be read, or asked.
        """

    def owner_of(self, group: str) -> str:
        """Return what a group's last owner wrote about itself; "" if nobody has owned it, or it can't be read."""

    def position_of(self, group: str) -> KeptPosition | None:
        """Return where a group's position is kept, for a caller that does not own it; None as in `GroupHold`."""

    def forget_former(self, group: str) -> None:
        """Forget what is kept of a dropped group of this name, unless the group exists; it is about to be created.

        Raises:
            StorageError: the storage refused.
        """

    def forget_files(self, group: str) -> None:
        """Remove what is beside an automatic group that was dropped, in `without_owner`: there may be thousands.

        If the storage refuses, it stays, and nothing depends on it.
        """
