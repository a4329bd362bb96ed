"""What a task of another process needs of a channel: it opens files, and not the channel.

Both plans are frozen and picklable. They are the only part of the port that speaks of local files: a channel on another
kind of storage has plans of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillable_stream.errors import StorageError
from spillable_stream.format.extent import Extent
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["ReadPlan", "StagePlan", "query_of_group"]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Where some events were when the read of them was planned.

    Args:
        layout: where the channel's files are.
        schemas: the channel's schemas, oldest first, as Arrow IPC messages.
        extents: where the events are, in order.
        ends: up to where the log files that are still written were written: file number to offset in bytes.
        host: the name of the host that planned it, and so has the memory tier.
    """

    layout: Layout
    schemas: tuple[bytes, ...]
    extents: tuple[Extent, ...]
    ends: Mapping[int | str, int]
    host: str

    def record_query(self, fs: FileSystem, group: str, query: str) -> None:
        """Write beside a group which Spark query reads as it (`query_of_group`), unless that is written.

        Args:
            fs: the file system.
            group: the group.
            query: the query's ID. All IDs have the same length, so that a new one covers the last.

        Raises:
            StorageError: the directory can't be written.
        """
        if query_of_group(fs, self.layout, group) == query:
            return
        file = fs.open(self.layout.group_query(group), create=True)
        try:
            file.write(0, [query.encode()])
        finally:
            file.close()


def query_of_group(fs: FileSystem, layout: Layout, group: str) -> str | None:
    """Return the ID of the Spark query whose tasks read as a group last; None if none did."""
    try:
        return fs.read_file(layout.group_query(group)).decode(errors="replace")
    except (FileNotFoundError, StorageError):
        return None


@dataclass(frozen=True, slots=True)
class StagePlan:
    """How rows are staged for a put that the channel commits later.

    Args:
        layout: where the channel's files are.
        schema: the channel's newest schema, as an Arrow IPC message.
        schema_id: its number.
        compression: the channel's option: how batches are compressed.
        memory_bytes: how large a staged file may get in the memory tier; 0 stages it on disk at once.
        minimum_required_space: the channel's option: what stays free on disk, in bytes, or None for the default.
    """

    layout: Layout
    schema: bytes
    schema_id: int
    compression: str
    memory_bytes: int
    minimum_required_space: int | None

    def begin(self, owner: str, batch_id: int) -> StagedFileWriter:
        """Begin a staged file, in the channel's memory tier where this host has it.

        Args:
            owner: whose it is: a streaming query's ID, or a batch write's own.
            batch_id: the owner's number for the batch.

        Raises:
            StorageError: no file could be made.
        """
        fs = FileSystem()
        self.layout.grant(fs)
        return StagedFileWriter(fs, self.layout, owner, batch_id, self.memory_bytes, self.minimum_required_space)
