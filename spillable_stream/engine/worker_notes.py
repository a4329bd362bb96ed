"""What workers say of themselves, for whoever looks at a channel from outside: the last worker of each group.

No commit depends on it. The next worker of a group writes over it, so it stays after a worker has ended, or died.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from spillable_stream.format.frame import file_seed

__all__ = ["SILENT_SECONDS", "WORKER_MARK", "NotePace", "WorkerNote", "WorkerNotes", "note_seed"]

WORKER_MARK = "a worker of up to "
"""Part of the note about a group's owner if that is a worker."""

SILENT_SECONDS = 30.0
"""How long a running worker may say nothing, unless it says otherwise. It says something now and then, whatever it
waits for."""


class NotePace(NamedTuple):
    """How often a worker says something.

    Args:
        change_seconds: how much time there is between two notes, at least.
        alive_seconds: after how long something is said though nothing has changed.
        silent_seconds: a worker that has said nothing for longer hangs, or can't be seen to have died.
    """

    change_seconds: float
    alive_seconds: float
    silent_seconds: float


class WorkerNote(Protocol):
    """What the worker of one group says. The group is owned."""

    @property
    def pace(self) -> NotePace:
        """How often to say something."""

    def write(self, value: bytes) -> None:
        """Say something, without waiting for long. Where the storage refuses, it says what it said, or nothing."""

    def close(self, last: bytes | None) -> None:
        """Say the last thing, and no more.

        Args:
            last: what to say; None in a forked child, which says nothing.
        """


class WorkerNotes(Protocol):
    """The notes of a channel's workers."""

    def open(self, group: str) -> WorkerNote | None:
        """Return the note of a group that is owned; None if the storage refuses."""

    def read(self) -> dict[str, bytes]:
        """Return the notes, by group, without those that can't be read; after a look at the channel."""

    def forget(self, group: str) -> None:
        """Remove the note of a group that is about to be dropped, and the one that says which query read as it.

        If the storage refuses, they stay until the next worker, and the next query, write over them.
        """


def note_seed(channel: str, group: str) -> int:
    """Return what the checksum of a note starts from: no note passes for that of another group, or channel.

    Args:
        channel: the channel's UUID.
        group: the group's name.
    """
    return file_seed(channel, f"worker/{group}")
