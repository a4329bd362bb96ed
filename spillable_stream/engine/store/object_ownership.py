"""A group of a channel in an object store that this handle owns, as far as it knows: the log has the last word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.owner_note import note_with
from spillable_stream.engine.process_owners import ProcessOwner
from spillable_stream.errors import GroupOwnedError
from spillable_stream.state.contents import OwnerRecord

__all__ = ["ANSWER_SECONDS", "ObjectGroupHold", "ObjectOwnership", "Owners"]

ANSWER_SECONDS = 10.0
"""How long a claim waits for an answer, by the claimant's own clock. Owners look every second."""


class Owners(Protocol):
    """What an ownership needs of those who keep it: `ObjectOwners`.

    Attributes:
        path: the channel.
        losses: returns how many losses the handle has met (`ObjectLog.losses`).
    """

    path: ChannelPath
    losses: Callable[[], int]

    def known(self, group: str) -> OwnerRecord | None:
        """Return who owns a group by the state as it is known."""

    def say_again(self, owned: ObjectOwnership) -> None:
        """Write the note of a group of this handle, which has changed; raises what `ObjectOwnership.write` does."""

    def give_up(self, owned: ObjectOwnership) -> None:
        """Own a group no more, and say so; a failure is logged."""

    def forget(self, owned: ObjectOwnership) -> None:
        """Answer no claims of a group any more."""


class ObjectOwnership:
    """A group that this handle owns, as far as it knows. It implements `Ownership`.

    Args:
        owners: the owners of the handle's groups.
        group: the group's name.
        note: what it says of itself.

    Attributes:
        epoch: the number of the ownership; 0 before it is one.
        former: what an owner said of itself that has not given the group up, or has left; "" if there was none.
        left_note: what to write when the group is given up; "" for nothing.
        losses: how many losses the handle had met (`ObjectLog.losses`).
    """

    def __init__(self, owners: Owners, group: str, note: str) -> None:
        self.group = group
        self.note: str = note
        self.epoch: int = 0
        self.former: str = ""
        self.position: None = None
        self.left_note: str = ""
        self.losses: int = 0
        self._owners = owners
        self._owner = ProcessOwner(note)
        self._lost: GroupOwnedError | None = None

    @property
    def lost(self) -> GroupOwnedError | None:
        """Return why it is lost: what `require` found, or that the handle has met a loss of slots or a repair.

        After that an ID that was claimed may be another event's, and the epoch another handle's.
        """
        if self._lost is None and self.losses != self._owners.losses():
            self._lost = GroupOwnedError(
                f"slots of {self._owners.path} that this handle knew were lost, or the channel was repaired, so what "
                f"it took as the group {self.group!r} may have the IDs of other events now: roll back, and begin "
                "another take"
            )
        return self._lost

    def require(self) -> None:
        """Prove that the state still says so, where a commit is planned.

        Raises:
            GroupOwnedError: another handle took the group over, it was dropped, or slots that were known are lost.
        """
        known = self._owners.known(self.group)
        if self.lost is None and (known is None or known.epoch != self.epoch):
            by = f"{known.note} took it over" if known is not None else "it was dropped or given up"
            self._lost = GroupOwnedError(
                f"this handle owns the group {self.group!r} of {self._owners.path} no more: {by}, and its events are "
                f"in the queue again: roll back, and begin another take, which claims it again. It is lost without an "
                f"answer to a claim for {ANSWER_SECONDS:g} s, or when its owner seems gone",
                "" if known is None else known.note,
            )
        if self._lost is not None:
            raise GroupOwnedError(self._lost.args[0], self._lost.owner)

    def write(self, note: str) -> None:
        """Write something else about the owner.

        Raises:
            GroupOwnedError: another handle took the group over, or it was dropped.
            StorageError: the store refused or failed.
        """
        self.note = note_with(self.note, note)
        self._owners.say_again(self)

    def forget_note(self) -> None:
        """Do nothing: the state has no note but this owner's."""

    def leave_note(self, note: str) -> None:
        """Let `close` write it: without one it writes that the group is given up, and nothing else."""
        self.left_note = note and note_with(self.note, note)

    def close(self) -> None:
        """Give the group up; where the store does not answer, another owner has to claim it."""
        self._owner.close()
        self._owners.give_up(self)

    def forget(self) -> None:
        """Let it be nobody's."""
        self._owner.close()
        self._owners.forget(self)

    def leave(self) -> None:
        """In a forked child: leave the group to the parent."""


class ObjectGroupHold:
    """A group that is owned to be changed; what its last owner wrote is kept apart from what answers claims.

    It is a `GroupHold`.

    Args:
        owned: the group.
        former: what its last owner wrote about itself.
    """

    def __init__(self, owned: ObjectOwnership, former: str) -> None:
        self.note = former
        self.position: None = None
        self.require: Callable[[], None] = owned.require

    def forget_note(self) -> None:
        """Do nothing: whoever gives a group up leaves no note in the state, nor does a drop."""
