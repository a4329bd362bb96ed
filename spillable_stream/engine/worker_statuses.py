"""The statuses of workers, for whoever looks at a channel from outside: what the last worker of each group does or did.

No commit depends on it. The next worker of a group writes over it, so it stays after a worker has ended, or died.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from spillable_stream.format.frame import file_seed

__all__ = ["SILENT_SECONDS", "WORKER_MARK", "StatusPace", "StatusWriter", "WorkerStatuses", "status_seed"]

WORKER_MARK = "a worker of up to "
"""Part of the note about a group's owner if that is a worker."""

SILENT_SECONDS = 30.0
"""How long a running worker may say nothing, unless it says otherwise. It says something now and then, whatever it
waits for."""


class StatusPace(NamedTuple):
    """How often a worker writes its status.

    Args:
        change_seconds: how much time there is between two writes, at least.
        alive_seconds: after how long it is written though nothing has changed.
        silent_seconds: a worker that has written nothing for longer hangs, or can't be seen to have died.
    """

    change_seconds: float
    alive_seconds: float
    silent_seconds: float


class StatusWriter(Protocol):
    """Writes the status of one group's worker. The group is owned."""

    @property
    def pace(self) -> StatusPace:
        """How often to write."""

    def write(self, value: bytes) -> None:
        """Write a status, without waiting for long. Where the storage refuses, the former one stays, or none."""

    def close(self, last: bytes | None) -> None:
        """Write the last status, and no more.

        Args:
            last: the status; None in a forked child, which writes nothing.
        """


class WorkerStatuses(Protocol):
    """The statuses of a channel's workers."""

    def open(self, group: str) -> StatusWriter | None:
        """Return what writes the status of the worker of a group that is owned; None if the storage refuses."""

    def read(self) -> dict[str, bytes]:
        """Return the statuses, by group, without those that can't be read; after a look at the channel."""

    def forget(self, group: str) -> None:
        """Remove the status of a group that is about to be dropped, and the note of the query that read as it.

        If the storage refuses, they stay until the next worker, and the next query, write over them.
        """


def status_seed(channel: str, group: str) -> int:
    """Return what the checksum of a status starts from: none passes for that of another group, or channel.

    Args:
        channel: the channel's UUID.
        group: the group's name.
    """
    return file_seed(channel, f"worker/{group}")
