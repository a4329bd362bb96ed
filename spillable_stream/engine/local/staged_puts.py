"""What a put needs before it is planned: room on disk, and its staged files where they should be."""

from __future__ import annotations

from dataclasses import replace

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.delayed_puts import DelayedPuts
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import StorageError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.file_names import DISK, disk_segment, in_memory
from spillable_stream.log.disk_space import DiskSpace, kept_bytes, require_space
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter, copy_to_disk
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["StagedPuts"]


class StagedPuts:
    """Proves that a put can be appended, and moves what was staged in memory to disk if it goes there.

    Args:
        log: that of the disk tier.
    """

    def __init__(self, fs: FileSystem, layout: Layout, log: WriteAheadLog) -> None:
        self._fs = fs
        self._layout = layout
        self._log = log
        self._disk_space = DiskSpace(fs, layout)

    def prepare(self, request: Put, plan: AppendPlan, file_id: int, end: int) -> None:
        """Refuse a put for which there is no disk space, or whose staged files are not there.

        Args:
            request: the put, about to be planned.
            plan: where to.
            file_id: the file of the append.
            end: where that ends with it, at most.
        """
        if (request.sink or request.producer) and request.done(plan):  # a batch that is over has no staging any more
            return
        if plan.tier is DISK:
            files, largest_end = plan.state.blocks.disk.files, self._log.max_file_size_bytes
            has_older = len(files) > (file_id in files)
            kept = kept_bytes(largest_end if has_older and largest_end > end else end)
            given = plan.state.options.minimum_required_space
            waiting_bytes = plan.state.delays.payload_bytes
            delayed_bytes = 0
            if request.delayed is not None:
                waiting_bytes += request.delayed.use().payload_bytes
                delayed_bytes += request.delayed.size_bytes() if isinstance(request.delayed, DelayedPuts) else 0
            if plan.delays is not None:
                waiting_bytes += plan.delays.waiting_bytes
                delayed_bytes += plan.delays.size_bytes()
            if given != 0 or waiting_bytes:
                staged_bytes = sum([s.end for s in request.segments]) if request.segments else 0
                self._disk_space.require(given, file_id, end + kept, staged_bytes, delayed_bytes, waiting_bytes)
                if request.segments:
                    self._require_space_of_copies(request.segments, given, waiting_bytes)
            if end + kept > self._log.preallocation.end:
                self._log.keep_for_takes(end, kept)
            if request.segments:
                self._move_to_disk(request)
        for segment in request.segments:  # every event that is acknowledged can be read
            path = self._layout.segment_file(segment.name)
            if self._fs.size_bytes(path) < segment.end:
                raise StorageError(f"the staged file {path} is gone or cut; nothing was committed: do the write again")

    def _move_to_disk(self, request: Put) -> None:
        try:
            request.segments = [self._on_disk(s, request.writer) for s in request.segments]
        except StorageError as e:
            request.not_staged = e
            raise

    def _require_space_of_copies(self, segments: list[SegmentRef], given: int | None, waiting_bytes: int) -> None:
        for segment in segments:
            if in_memory(segment.name):
                copy = self._layout.segment_file(disk_segment(segment.name))
                require_space(self._fs, copy.parent, given, segment.end, waiting_bytes)

    def found(self, segment: SegmentRef) -> SegmentRef:
        """Return where a staged segment is: the memory tier may have been closed since, which moved it to disk."""
        if not in_memory(segment.name):
            return segment
        on_disk = replace(segment, name=disk_segment(segment.name))
        return on_disk if self._fs.exists(self._layout.segment_file(on_disk.name)) else segment

    def _on_disk(self, segment: SegmentRef, writer: StagedFileWriter | None) -> SegmentRef:
        """Move a segment that was staged in memory to disk; a writer keeps it from being taken for an abandoned one."""
        if not in_memory(segment.name):
            return segment
        source = self._layout.segment_file(segment.name)
        if self._fs.size_bytes(source) >= segment.end:
            if writer is not None:
                writer.keep_on_disk()
            else:
                copy_to_disk(self._fs, self._layout, segment.name)
                self._fs.remove(source)
        return replace(segment, name=disk_segment(segment.name))
