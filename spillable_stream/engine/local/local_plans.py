"""The plans of a channel on this host: a task opens the channel's files by them.

A driver can't see the disks of its executors, so the first task is the first that can tell whether its host has the
channel's directories, and its memory tier to read from that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from spillable_stream.counted import agreeing
from spillable_stream.engine.local.staged_delays import FileStaging
from spillable_stream.engine.task_plans import PlanReader, ReadPlan
from spillable_stream.errors import NotAChannelError, OtherHostError, StorageError
from spillable_stream.format.batch import FRAME_BYTES
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import in_memory
from spillable_stream.format.query_note import QueryNote, packed, unpacked
from spillable_stream.format.schema_history import SchemaHistory
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.event_reader import EventReader, ReadBatch
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.quarantine import keep_damaged, not_quarantined
from spillable_stream.log.salvage import Unreadable, salvage
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_names import named
from spillable_stream.state.ranges import Range, count_of, events_in
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.system_errors import may_not_write

__all__ = ["LocalPlanReader", "LocalReadPlan", "LocalStagePlan", "read_query_note"]

_log = log_of(__name__)


@dataclass(frozen=True, slots=True)
class LocalReadPlan:
    """Where some events were in the channel's files. `ReadPlan` documents the verbs.

    Args:
        layout: where the channel's files are.
        schemas: the channel's schemas.
        extents: where the events are, in order.
        ends: up to where the log files that are still written were written: file number to offset in bytes.
        host: the name of the host that planned it, and so has the memory tier.
    """

    layout: Layout
    schemas: SchemaHistory
    extents: tuple[Extent, ...]
    ends: Mapping[int | str, int]
    host: str

    def open(self) -> PlanReader:
        fs = FileSystem()
        _require_channel(fs, self.layout)
        self.layout.grant(fs)
        self._require_memory(fs)
        return LocalPlanReader(fs, self)

    def _require_memory(self, fs: FileSystem) -> None:
        """Refuse to read events of the memory tier where it is not."""
        layout, wanted = self.layout, [extent for extent in self.extents if in_memory(extent.file)]
        # No link is another matter: the tier was closed since, and its events are on disk.
        if wanted and fs.link_target(layout.memory) is not None and not fs.exists(layout.memory):
            events = [(wanted[0].first_id, wanted[-1].last_id)]
            raise OtherHostError(
                f"the host {os.uname().nodename} can't read {events_in(events)} of {layout.path}, which "
                f"{agreeing(count_of(events), 'are')} in the memory of the host {self.host}: run Spark there, or move "
                f"events to disk there with Channel.flush() and do without a memory tier ({named('memoryCapacity')} 0)"
            )


class LocalPlanReader:
    """Reads planned events from the channel's files. `PlanReader` documents the verbs.

    Args:
        fs: the file system.
        plan: where the events were when the read was planned.
    """

    def __init__(self, fs: FileSystem, plan: LocalReadPlan) -> None:
        self._fs = fs
        self._layout = plan.layout
        self._ends = plan.ends
        self._schema_of = plan.schemas.decoded().__getitem__
        self._reader = EventReader(fs, plan.layout, self._schema_of, lambda file: self._ends.get(file))

    @property
    def path(self) -> str:
        return str(self._layout.path)

    @property
    def channel(self) -> str:
        return self._layout.channel

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        return self._reader.read(extent)

    def read_past_damage(self, extent: Extent) -> Iterator[ReadBatch | Unreadable]:
        try:
            for found in salvage(self._fs, self._layout, self._schema_of, extent):
                if isinstance(found, Unreadable) and not self._fs.exists(found.path):
                    return  # what was read is another file of memory, which is used again
                yield found
        except FileNotFoundError:
            _log.debug(
                "%s was removed after damage was found in it",
                self._layout.file(extent.file),
                extra=fields(self.path, file=self._layout.file(extent.file)),
            )

    def may_move(self, extent: Extent) -> bool:
        return in_memory(extent.file)

    def catch_up(self, plan: ReadPlan) -> None:
        self._ends = plan.ends

    def keep_damaged(self, damage: Unreadable) -> None:
        keep_damaged(self._fs, self._layout.path, damage)

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        return not_quarantined(self._fs, self._layout.path, lost)

    def query_note(self, group: str) -> QueryNote | None:
        return read_query_note(self._fs, self._layout, group)

    def note_query(self, group: str, note: QueryNote) -> bool:
        path = self._layout.group_query(group)
        try:
            file = self._fs.open(path, create=True)
        except StorageError as e:
            if may_not_write(e):
                return False
            raise
        try:
            file.write(0, [packed(note, self.channel, group)])
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(path.parent)
        return True

    def close(self) -> None:
        self._reader.close()


@dataclass(frozen=True, slots=True)
class LocalStagePlan:
    """How rows are staged in a file on disk or in memory. `StagePlan` documents the verbs.

    Args:
        layout: where the channel's files are.
        schema: the channel's newest schema, as an Arrow IPC message.
        schema_id: its number.
        compression: the channel's option: how batches are compressed.
        memory_bytes: how large a staged file may get in the memory tier; 0 stages it on disk at once.
        minimum_required_space: the channel's option: what stays free on disk, in bytes, or None for the default.
        waiting_bytes: the size of the delayed events that wait, which need as much once more.
    """

    layout: Layout
    schema: bytes
    schema_id: int
    compression: str
    memory_bytes: int
    minimum_required_space: int | None
    waiting_bytes: int

    @property
    def channel(self) -> str:
        return self.layout.channel

    @property
    def frame_bytes(self) -> int:
        return FRAME_BYTES

    def ask_here(self) -> Callable[[], None]:
        _require_channel(FileSystem(), self.layout)
        return lambda: None

    def begin(self, owner: str, batch_id: int) -> StagedFileWriter:
        """Begin a staged file, in the channel's memory tier where this host has it."""
        fs = FileSystem()
        self.layout.grant(fs)
        return self._writer(fs, owner, batch_id, self.memory_bytes)

    def begin_delayed(self, owner: str, batch_id: int) -> FileStaging:
        """Begin to stage delayed rows, on disk, where all of them wait."""
        fs = FileSystem()
        self.layout.grant(fs)
        stage = partial(self._writer, fs, owner, batch_id, 0)
        return FileStaging(stage, lambda: None, DelayedFiles(fs, self.layout), keeps_locks=False)

    def _writer(self, fs: FileSystem, owner: str, batch_id: int, memory_bytes: int) -> StagedFileWriter:
        required = self.minimum_required_space
        return StagedFileWriter(fs, self.layout, owner, batch_id, memory_bytes, required, self.waiting_bytes)


def read_query_note(fs: FileSystem, layout: Layout, group: str) -> QueryNote | None:
    """Return what is noted of the Spark query that reads as a group; None if nothing is."""
    try:
        data = fs.read_file(layout.group_query(group))
    except FileNotFoundError:
        return None
    return unpacked(data, layout.channel, group)


def _require_channel(fs: FileSystem, layout: Layout) -> None:
    """Refuse to run a task on a host that does not have the channel's directories.

    Raises:
        NotAChannelError: this host has no channel there, or another one.
    """
    try:
        known = read_identity(fs, layout.path).channel == layout.channel
        lacking = f"another channel at {layout.path}" if not known else ""
    except NotAChannelError:
        lacking = f"no channel at {layout.path}"
    absent = [str(directory) for directory in layout.data_dirs if not fs.exists(directory)]
    if not lacking and absent:
        lacking = f"no directory {absent[0]} of the channel {layout.path}"
    if lacking:
        raise NotAChannelError(
            f"the host {os.uname().nodename} has {lacking}, and every executor must see the channel's directory: run "
            "Spark on the channel's host, or put the channel on a volume that all hosts have at the same path"
        )
