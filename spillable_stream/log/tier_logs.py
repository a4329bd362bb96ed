"""The logs of both tiers, read as one.

Every append has a time that no other has (`ChannelState.time_us`), so the two logs have one order.
Both ends are published together, so what lies before them is always a beginning of that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from spillable_stream.format.file_names import Tier, generation_of, memory_file_id
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.wal import Position, WriteAheadLog

__all__ = ["Positions", "Tiers"]

_NOWHERE = Position(0, 0)


class Positions(NamedTuple):
    """A place in both logs.

    Args:
        disk: in the data files.
        memory: in the memory tier's files; (0, 0) without one.
    """

    disk: Position
    memory: Position = _NOWHERE

    @classmethod
    def of(cls, published: CommitPoint) -> Positions:
        """Return where the head says that the logs end."""
        disk, memory = new_tuple(Position, published.disk[:2]), new_tuple(Position, published.memory[:2])
        return new_tuple(cls, (disk, memory))

    def is_before(self, other: Positions) -> bool:
        """Tell whether this was published before ``other`` was: no end of the same log ever moves back."""
        return self.disk < other.disk or (
            self.memory < other.memory and generation_of(self.memory.file_id) == generation_of(other.memory.file_id)
        )


class Tiers:
    """The two logs of a channel.

    Args:
        lock: the commit lock and head.
    """

    def __init__(self, lock: CommitLock) -> None:
        self.disk: WriteAheadLog = WriteAheadLog(lock, Tier.DISK)
        self.memory: WriteAheadLog = WriteAheadLog(lock, Tier.MEMORY)

    def records(self, start: Positions, end: Positions) -> Iterator[tuple[int, LocatedFrame]]:
        """Yield (file number, frame) of both logs between two published places, in the order of the appends.

        Headers of files, which have no time, are left out where both logs continue.

        Raises:
            FileNotFoundError: a file at ``start`` was deleted since.
            CorruptionError: a frame that must be whole is not.
        """
        logs = []
        if start.disk < end.disk:
            logs.append(self.disk.records(start.disk, end.disk))
        if end.memory.file_id and start.memory < end.memory:
            begin = start.memory
            if begin.file_id != end.memory.file_id and (
                generation_of(begin.file_id) != generation_of(end.memory.file_id)
            ):
                begin = Position(memory_file_id(generation_of(end.memory.file_id), 1), 0)
            logs.append(self.memory.records(begin, end.memory))
        if len(logs) == 1:
            return logs[0]
        return merge(*map(_without_headers, logs), key=lambda r: r[1].header.time_us)

    def close(self) -> None:
        """Close the files of both."""
        self.disk.close()
        self.memory.close()


def _without_headers(log: Iterator[tuple[int, LocatedFrame]]) -> Iterator[tuple[int, LocatedFrame]]:
    return (r for r in log if r[1].header.type != FrameType.FILE_HEADER)
