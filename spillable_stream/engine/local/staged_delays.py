"""Delayed events of a large put: they go to side files of the put's own as they come, before its commit.

A put with a few of them appends these to side files that are there, under the commit lock. One with many would hold
them in memory until then, and the lock while they are written. So each stretch of time that it touches gets a staged
segment, which is a side file but for its name; a COMMIT that names it makes it one. A task of Spark stages them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.delayed_chunk import FULL_BYTES, DelayedChunk
from spillable_stream.engine.delayed_puts import StagedDelayed, StagedRuns
from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.staged_file import StagedFileWriter

__all__ = ["FileStaging", "StagedDelayFiles"]


@dataclass(slots=True)
class _Staged:
    """A side file to be.

    Args:
        writer: writes it.
        begin_ms: where its stretch of time begins.
        width_ms: how long that is.
        first_ms: when the first of its events is due.
        count: how many events it has.
        payload_bytes: the size of their payloads.
        size_bytes: how much was written, about.
        run: what a COMMIT says of it, once it is whole.
    """

    writer: StagedFileWriter
    begin_ms: int
    width_ms: int
    first_ms: int
    count: int = 0
    payload_bytes: int = 0
    size_bytes: int = 0
    run: DelayedRun | None = None

    def add(self, chunk: DelayedChunk) -> None:
        self.writer.write(chunk.frames)
        put = chunk.frames[1]
        self.first_ms = min(self.first_ms, chunk.first_ms)
        self.count += put.count
        self.payload_bytes += len(put.payload)
        self.size_bytes += sum([len(frame.payload) for frame in chunk.frames])

    def finish(self) -> DelayedRun:
        if self.run is None:
            staged = self.writer.finish()
            where = 0, self.begin_ms, self.width_ms, 0, staged.end
            self.run = DelayedRun(*where, self.count, self.payload_bytes, self.first_ms, staged.name)
        return self.run


@dataclass(frozen=True, slots=True)
class StagedDelayFiles(StagedRuns):
    """Delayed events in staged files. It implements `StagedDelayed`.

    Args:
        runs: what a COMMIT says of each.
        files: the channel's side files.
    """

    files: DelayedFiles

    def place(self, plan: AppendPlan) -> list[DelayedRun]:
        """Give each file a number, and return what the COMMIT says of that.

        Raises:
            StorageError: a file is gone.
        """
        for run in self.runs:  # every event that is acknowledged can be read
            if not self.files.has_staged(run.name, run.end):
                raise StorageError(f"the staged file {run.name} is gone or cut; nothing was committed: put it again")
        return plan.delay(self.files).adopt(self.runs)


class FileStaging:
    """The delayed events of a large put, on a disk.

    Args:
        stage: creates a staged file on disk.
        make_room: frees disk space.
        files: the channel's side files.
        keeps_locks: whether a file that is full stays locked, which alone shows that it is not abandoned. One of a
            Spark query's need not be: its name says whose it is.
    """

    def __init__(
        self,
        stage: Callable[[], StagedFileWriter],
        make_room: Callable[[], None],
        files: DelayedFiles,
        *,
        keeps_locks: bool = True,
    ) -> None:
        self._stage = stage
        self._make_room = make_room
        self._files = files
        self._keeps_locks = keeps_locks
        self._all: list[_Staged] = []
        self._open: dict[tuple[int, int], _Staged] = {}  # by stretch

    def write(self, chunks: Sequence[DelayedChunk]) -> None:
        """Write events.

        Raises:
            DiskSpaceError: too little would be free.
            StorageError: the file system refused. All that was written can only be discarded.
        """
        for chunk in chunks:
            try:
                self._staged_for(chunk).add(chunk)
            except DiskSpaceError:  # nothing of it was written
                self._make_room()
                self._staged_for(chunk).add(chunk)

    def _staged_for(self, chunk: DelayedChunk) -> _Staged:
        """Return the file of a chunk's stretch of time, or another one if there is none, or that is full."""
        staged = self._open.get(chunk[:2])
        if staged is None or staged.size_bytes >= FULL_BYTES:
            if staged is not None and not self._keeps_locks:  # else a task had a file open for each 16 MiB
                staged.finish()
                staged.writer.close()
            staged = self._open[chunk[:2]] = _Staged(self._stage(), *chunk[:2], chunk.first_ms)
            self._all.append(staged)
        return staged

    def finish(self) -> StagedDelayed:
        """Sync the files, and return what a put needs to name them.

        Raises:
            StorageError: a sync failed, now or before; they can only be discarded.
        """
        return StagedDelayFiles([staged.finish() for staged in self._all], self._files)

    def close(self) -> None:
        """Close the files, and keep them."""
        for staged in self._all:
            staged.writer.close()

    def discard(self) -> None:
        """Close and remove the files."""
        for staged in self._all:
            staged.writer.discard()
