"""The source ``taildir``: the lines of files that grow, each once in each channel, through rotations and crashes.

A batch is lines of one file. Its number and a note go with it into the channels: the file, the bytes that the batch
is, and the positions that changed since the position file was written. So after a crash the newest note says what may
be missing in a channel: it is read again, and put again under its number.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spillable_stream.errors import StorageError
from spillable_stream.flow.checked_arguments import Count, Size, checked
from spillable_stream.flow.sources.base import BatchProcessor
from spillable_stream.flow.sources.event_columns import event_batch, path_header
from spillable_stream.flow.sources.file_groups import file_groups
from spillable_stream.flow.sources.file_watch import FileWatch
from spillable_stream.flow.sources.lines import SplitLines, split_lines
from spillable_stream.flow.sources.numbered_source import InFlightBatch, NumberedSource
from spillable_stream.flow.sources.position_file import FilePosition, PositionFile, SavedPositions
from spillable_stream.flow.sources.tail_note import Span, read_note, write_note
from spillable_stream.flow.sources.tailed_file import Chunk, Mark, TailedFile
from spillable_stream.flow.sources.tailed_files import TailedFiles
from spillable_stream.log_records import log_of

__all__ = ["TailDir"]

_log = log_of("spillable_stream.flow")

_PIECE_BYTES = 4 << 20
_LONGEST_LINE_BYTES = 256 << 20
_NOTE_BYTES = 2 << 10  # a longer note is cut short by adding to the position file what has changed


@dataclass(slots=True)
class _Piece:
    """Bytes of a file that were read and split, and how many of their lines were put."""

    file: TailedFile
    chunk: Chunk
    lines: SplitLines
    done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileBatch(InFlightBatch):
    """A batch of a file, and where that is after it; without the file if it is there already."""

    file: TailedFile | None
    after: Mark


class TailDir(NumberedSource[_FileBatch]):
    """Reads files as they grow, line by line, each line once in each required channel.

    A file is known by its inode and by its bytes. A renamed file is read on where it was, whatever its new name.
    A copy of a file that is then truncated (``copytruncate``) is read from where the file was. A file that is truncated
    is read from its beginning.

    Args:
        filegroups: of each group, a directory and a regular expression of file names, as ``/var/log/app/.*[.]log``.
        listed_filegroups: the groups that are read, of those; all of them by default.
        position_file: where positions are kept, in Flume's format.
        headers: headers of each group's events.
        byte_offset_header: whether events have a header ``byteoffset``: where the line starts in its file.
        skip_to_end: whether files without a position are read from their end when the source starts.
        idle_timeout: after how many milliseconds without change a file is closed, and a last line that has no line feed
            is taken as it is.
        write_pos_interval: how often the position file is written, in milliseconds.
        batch_size: how many lines one transaction has at most.
        max_batch_count: how many batches of a file are read before those of the next.
        backoff_sleep_increment: see `PolledSource`.
        max_backoff_sleep: see `PolledSource`.
        cache_pattern_matching: whether a directory is listed only after it has changed.
        file_header: whether events have a header with the path of their file.
        file_header_key: the name of this header.
        now: the clock, in seconds since 1970; for tests.

    Raises:
        OptionError: a group is not valid.
    """

    @checked
    def __init__(
        self,
        filegroups: Mapping[str, str],
        *,
        listed_filegroups: Sequence[str] | None = None,
        position_file: str | os.PathLike[str] = "~/.flume/taildir_position.json",
        headers: Mapping[str, Mapping[str, str]] | None = None,
        byte_offset_header: bool = False,
        skip_to_end: bool = False,
        idle_timeout: Size = 120_000,
        write_pos_interval: Size = 3_000,
        batch_size: Count = 100,
        max_batch_count: Count = 2**63 - 1,
        backoff_sleep_increment: Size = 1000,
        max_backoff_sleep: Size = 5000,
        cache_pattern_matching: bool = True,
        file_header: bool = False,
        file_header_key: str = "file",
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(batch_size, backoff_sleep_increment, max_backoff_sleep)
        self.first_refused_wait: int = min(1000, max_backoff_sleep)
        self.max_refused_wait = max_backoff_sleep
        listed = (
            filegroups
            if listed_filegroups is None
            else {n: filegroups[n] for n in listed_filegroups if n in filegroups}
        )
        groups = file_groups(listed, cached=cache_pattern_matching)
        self._files = TailedFiles(
            groups,
            idle_seconds=idle_timeout / 1000,
            skip_to_end=skip_to_end,
            now=now,
        )
        self._watch = FileWatch(
            {group.directory for group in groups},
            lambda path: any(group.has_name(os.path.basename(path)) for group in groups),
        )
        self._positions = PositionFile(position_file)
        self._headers = headers or {}
        self._byte_offset_header = byte_offset_header
        self._idle_seconds = idle_timeout / 1000
        self._write_seconds = write_pos_interval / 1000
        self._max_batch_count = max_batch_count
        self._file_header = file_header_key if file_header else ""
        self._now = now
        self._reset()

    def _reset(self) -> None:
        self._queue: deque[TailedFile] = deque()
        self._piece: _Piece | None = None
        self._held = None
        self._batches_of_file = 0
        self._number = 0
        self._settled = 0  # the number of the last batch that is in all channels
        self._base = 0  # the number in the position file
        self._changed: dict[int, FilePosition] = {}  # since then
        self._written_at = -math.inf
        self._said: set[str] = set()  # of what can't be read

    # ── start and end ───────────────────────────────────────────────────────────────────────

    def open(self, processor: BatchProcessor) -> None:
        """Find the files and where to read on, and put again what a crash may have left in some channels only.

        Raises:
            CorruptionError: the position file is damaged.
            StorageError: it can't be read or written, or is another source's.
        """
        self._reset()
        self._positions.source = self.name
        # First: the agent that had the name until now may have written positions.
        newest = processor.newest(lambda number: self._positions.read().number >= number)
        positions = self._positions.read()
        files = dict(positions.files)
        span, self._number = None, positions.number
        changed: dict[int, FilePosition] = {}
        if newest is not None:
            span, changed = read_note(newest.note)
            if newest.number > positions.number:  # else the position file says more
                files |= changed
                self._number = newest.number
        self._base = positions.number
        self._changed = {inode: p for inode, p in files.items() if positions.files.get(inode) != p}
        skipped = self._files.begin(self.name, files, only_flume=positions.only_flume)
        if newest is not None and span is not None and not newest.complete:
            self._held = self._again(span, newest.note, changed[span.inode].mark)
        self._settled = self._number if self._held is None else positions.number
        if self._held is None:  # else they would pass over the batch: they are written when it is stored
            self._save_all()  # also what an agent that was killed has written and not synced
        elif skipped and not positions.only_flume:
            self._positions.write(SavedPositions({**positions.files, **skipped}, positions.number))

    def _again(self, span: Span, note: bytes, after: Mark) -> _FileBatch | None:
        """Return the newest batch once more: a channel that has it says so."""
        data = self._read_span(span, after)
        if data is None:
            self.counters.event_read_fail += 1
            self.miss(f"{span.path} is gone, and some channels have not got its bytes {span.start} to {span.end}")
            _log.of(self.name, file=span.path, offset=span.start).error(
                "the bytes %d to %d of %s may be in some channels only, and are gone: they can't be read again. Look "
                "for a channel without them",
                span.start,
                span.end,
                span.path,
            )
            return None
        batch = self._batch(span.group, span.path, *_bodies(data), span.start)
        return _FileBatch(batch=batch, note=note, is_repeated=True, file=None, after=after)

    def _read_span(self, span: Span, after: Mark) -> bytes | None:
        """Return the bytes of a batch, from its file or from the copy that was created before it was truncated.

        None if they are gone; raises StorageError where the disk can't read its file, which may have them.
        """
        own = [f for f in self._files if f.mark.inode == span.inode]
        for file in [*own, *self._files]:
            try:
                is_found = file.continues(after)
            except FileNotFoundError:
                continue
            except StorageError:
                if file in own:
                    raise
                continue
            if is_found:
                found: bytes = file.read_at(span.start, span.end - span.start)
                return found
        return None

    def close(self) -> None:
        """Write the positions and close the files."""
        try:
            # A batch that is held is not in them, but one that comes again: there is no position before that.
            if self._held is None or self._held.file is not None:
                self._write_positions()
        finally:
            self._positions.close()
            self._watch.close()
            self._files.close()

    def rest(self, seconds: float, stopping: threading.Event) -> None:
        """Wait, but not longer than until a file changes; see `PolledSource.rest`."""
        self._watch.wait(seconds, stopping)

    def lag(self) -> Mapping[str, float]:
        """Return how many bytes, of how many files, were there at the last look and are not stored yet."""
        unread = [f.size_bytes - f.mark.position for f in list(self._files) if not f.copy_of]
        return {"LagBytes": sum(max(0, size) for size in unread), "LagFiles": sum(size > 0 for size in unread)}

    # ── a round ─────────────────────────────────────────────────────────────────────────────

    def _was_stored(self, held: _FileBatch) -> None:
        """See `NumberedSource._was_stored`."""
        self._settled = self._number
        if held.file is not None:
            held.file.mark = held.after
            self._changed[held.after.inode] = FilePosition(held.file.path, held.after)

    def _go_back(self, held: _FileBatch) -> None:
        """See `NumberedSource._go_back`; the file's mark is still where the batch begins."""
        self._piece = None
        self._batches_of_file -= 1

    def _is_at_end(self) -> bool:
        """See `NumberedSource._is_at_end`."""
        return self._files.are_judged

    def _next(self) -> _FileBatch | None:
        """Return the next batch, or None when every file was read to its end."""
        if self._now() - self._written_at >= self._write_seconds:
            self._write_positions()
        looked = False
        while True:
            if self._piece is None and not self._queue:
                if looked:
                    return None
                self._queue, self._batches_of_file = deque(self._files.look()), 0
                self._say_unread()
                self._changed = {inode: at for inode, at in self._changed.items() if inode in self._files}
                looked = True
                continue
            if self._batches_of_file >= self._max_batch_count:
                self._piece, self._batches_of_file = None, 0
                self._queue.rotate(-1)
            self._piece = self._piece or self._read_piece()
            if self._piece is not None:
                return self._cut(self._piece)

    def _say_unread(self) -> None:
        """Say once, until it can be read, what can't."""
        for why in self._files.unread - self._said:
            self.counters.event_read_fail += 1
            self.miss(why)
            _log.of(self.name).error("%s", why)
        self._said = set(self._files.unread)

    def _read_piece(self) -> _Piece | None:
        """Read and split what the first file of the queue has; None when that is nothing, or no whole line."""
        file = self._queue[0]
        self._files.notice()
        try:
            piece = self._split(file)
        except FileNotFoundError:
            piece = None
        except StorageError as e:
            self.counters.event_read_fail += 1
            self.miss(str(e))
            _log.of(self.name, file=file.path).warning("%s", e)
            piece = None
        if piece is None:
            self._queue.popleft()
            self._batches_of_file = 0
        return piece

    def _split(self, file: TailedFile) -> _Piece | None:
        size = _PIECE_BYTES
        while True:
            left = file.size_bytes - file.mark.position
            chunk = file.read(min(size, max(left, 1)))
            if chunk is None or left < 0:
                self._files.truncated(file)
                continue
            data = chunk.data
            lines = split_lines(data, drop_cr=True)
            if lines.size_bytes:
                return _Piece(file, chunk, lines)
            whole = len(data) >= size and size >= _LONGEST_LINE_BYTES
            if data and (whole or (len(data) >= left and self._now() - file.modified >= self._idle_seconds)):
                bodies, starts = _bodies(data)
                return _Piece(file, chunk, SplitLines(bodies, starts, len(data)))
            if len(data) < size:
                return None
            size *= 2

    def _cut(self, piece: _Piece) -> _FileBatch:
        """Return the next lines of a piece, as many as a batch has."""
        if self._files.has_unsaved:  # after the batch nothing else would say where they are
            self._write_positions()
        first, last = piece.done, min(piece.done + self._limit.events, len(piece.lines.starts))
        start, end = piece.lines.end_of(first), piece.lines.end_of(last)
        file, offset = piece.file, piece.chunk.start.position
        bodies, starts = piece.lines.bodies.slice(first, last - first), piece.lines.starts[first:last]
        batch = self._batch(file.group, file.path, bodies, starts, offset)
        after = piece.chunk.mark_after(end)
        span = Span(file.mark.inode, offset + start, offset + end, file.path, file.group)
        note = write_note(span, self._base, {**self._changed, after.inode: FilePosition(file.path, after)})
        if len(note) > _NOTE_BYTES and self._changed.keys() - {after.inode}:
            self._save_changes()
            note = write_note(span, self._base, {after.inode: FilePosition(file.path, after)})
        piece.done = last
        if last == len(piece.lines.starts):
            self._piece = None
        self._batches_of_file += 1
        return _FileBatch(batch=batch, note=note, file=file, after=after)

    def _batch(self, group: str, path: str, bodies: pa.Array, starts: np.ndarray, offset: int) -> pa.RecordBatch:
        headers = dict(self._headers.get(group, {}))
        if self._file_header:
            headers[self._file_header] = path_header(path)
        columns = {"byteoffset": pa.array(starts + offset)} if self._byte_offset_header else {}
        return event_batch(bodies, headers, columns)

    # ── positions ───────────────────────────────────────────────────────────────────────────

    def _write_positions(self) -> None:
        """Write the position file where it is old: all batches up to the last one are in it then."""
        self._written_at = self._now()
        is_old = self._changed or self._files.has_unsaved or self._base != self._settled
        if is_old or self._positions.has_added or not self._positions.marks.exists():
            self._save_all()

    def _save_all(self) -> None:
        files = {f.mark.inode: FilePosition(f.path, f.mark) for f in self._files if not f.copy_of}
        self._positions.write(SavedPositions({**self._files.away, **files}, self._settled))
        self._base, self._changed, self._files.has_unsaved = self._settled, {}, False

    def _save_changes(self) -> None:
        """Have the positions that have changed in the position file, so that batches need not carry them."""
        if not self._positions.add(self._changed.values(), self._settled):
            self._save_all()
        self._base, self._changed = self._settled, {}


def _bodies(data: bytes) -> tuple[pa.Array, np.ndarray]:
    """Return the lines of bytes that may end in a line without a line feed, and where they start."""
    lines = split_lines(data if data.endswith(b"\n") else data + b"\n", drop_cr=True)
    return lines.bodies, lines.starts
