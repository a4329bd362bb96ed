"""The sink ``file_roll``: text files in a directory, a new one from time to time; each event once."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.flow.checked_arguments import Count, Size, checked
from spillable_stream.flow.durable_file import sync_directory
from spillable_stream.flow.sinks.base import BatchSink, Sink, Taken
from spillable_stream.flow.sinks.output_directory import OutputDirectory
from spillable_stream.flow.sinks.output_file import OutputFile, cut_back
from spillable_stream.flow.sinks.serializers import Serializer
from spillable_stream.flow.sinks.serializers import serializer as serializer_of
from spillable_stream.flow.sinks.written import Note, NotedEvents, NoteFile, WrittenEvents
from spillable_stream.log_records import log_of
from spillable_stream.shown_value import shown
from spillable_stream.state.ranges import Range

__all__ = ["FileRoll"]

_log = log_of("spillable_stream.flow")


class FileRoll(BatchSink):
    """Writes events into files of a directory.

    A batch is written and synced, the length of the file and the batch's IDs are noted, and the take is committed. So a
    crash repeats nothing, and what was written and not noted is cut away.

    Args:
        directory: where the files are; it is created by the first `open` of the sink alone.
        roll_interval: after how many seconds a new file begins; 0 for never.
        serializer: ``TEXT``, ``HEADER_AND_TEXT``, a class as ``module:Class``, or an object with ``encode(batch)``.
        serializer_append_newline: whether a line feed follows each body.
        batch_size: how many events a take has at most.
        path_manager: ``DEFAULT`` names files by the start of the sink and a number, ``ROLLTIME`` by the time at which
            each begins and a number.
        path_manager_prefix: what the names begin with.
        path_manager_extension: the extension of the names.
        channel: the name of the channel, for `Agent`.

    Raises:
        OptionError: the serializer or the path manager is not valid.
    """

    keeps_note = True

    @checked
    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        roll_interval: Size = 30,
        serializer: str | Serializer = "TEXT",
        serializer_append_newline: bool = True,
        batch_size: Count = 100,
        path_manager: str = "DEFAULT",
        path_manager_prefix: str = "",
        path_manager_extension: str = "",
        channel: str = "",
    ) -> None:
        super().__init__(batch_size, channel)
        self._directory = Path(directory).expanduser()
        self._place = OutputDirectory(self._directory)
        self._roll_seconds = roll_interval or float("inf")
        self._serializer = (
            serializer_of(serializer, append_newline=serializer_append_newline)
            if isinstance(serializer, str)
            else serializer
        )
        if path_manager.upper() not in ("DEFAULT", "ROLLTIME"):
            raise OptionError(f"there is no path manager {shown(path_manager)}; give DEFAULT or ROLLTIME")
        self._by_time = path_manager.upper() == "ROLLTIME"
        self._prefix, self._extension = path_manager_prefix, path_manager_extension
        self._file: OutputFile | None = None
        self._began = 0.0
        self._count = 0
        self._series = 0
        self._notes = NoteFile(self._directory, self.name)

    def succeed(self, before: Sink) -> None:
        """Learn that the directory was there; see `Sink.succeed`."""
        if isinstance(before, FileRoll) and before._directory == self._directory:
            self._place = before._place

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        """Cut what a crash left in the last file; see `Sink.open`.

        Raises:
            CorruptionError: the sink's note is damaged.
            StorageError: the directory can't be used.
        """
        super().open(channel, written)
        self._series, self._count = int(self.now() * 1000), 0
        self._notes.close()
        self._notes = NoteFile(self._directory, self.name)  # the name may be another one
        self._place.make()
        self._uncut: dict[str, int] = {}
        note = self._notes.read(channel) or Note(channel.uuid)
        for path, length in note.files.items():
            self._recover(Path(path), length)
        self._noted = NotedEvents(self.written, channel, self.consumer_group, note)

    def _recover(self, path: Path, length: int) -> None:
        try:
            if not cut_back(path, length):
                _log.of(self.name, file=path).error(
                    "%s is shorter than the %d bytes that were written; it was changed", path, length
                )
        except FileNotFoundError:
            _log.of(self.name, file=path).warning("%s is gone", path)

    def write(self, taken: Taken) -> None:
        """Write a batch; see `BatchSink.write`."""
        self._place.require()
        self._cut_failed()
        data = self._serializer.encode(taken.batch)
        file = self._current()
        ranges, before = tuple(taken.ranges), self._notes.last
        try:
            file.append(data)
            file.sync()
            self._note(file, ranges)
            self._keep(file, ranges)
        except BaseException:
            if self._notes.names(ranges, before):  # an interrupt came after the note
                self._keep(file, ranges)
            else:
                self._give_up(file)
            raise

    def _keep(self, file: OutputFile, ranges: tuple[Range, ...]) -> None:
        """Let what the note names count; also once more."""
        self.written.add(ranges)
        file.keep()

    def _note(self, file: OutputFile, ranges: tuple[Range, ...] = ()) -> None:
        self._notes.write(self._noted.note({str(file.path): file.size_bytes}, ranges))

    def _give_up(self, file: OutputFile) -> None:
        """Cut a file back whose append failed, and begin another one."""
        self._file = None
        self._uncut[str(file.path)] = file.length  # whatever interrupts this
        try:
            self._cut_failed()
        except SpillableError as e:
            _log.of(self.name).error("%s; it is tried again", e)
        finally:
            file.close()

    def _cut_failed(self) -> None:
        """Cut the files whose append failed. Until then their events are there, and are not written again.

        Nor does a note forget these files, as none is written.

        Raises:
            StorageError: the disk refused.
        """
        for path, length in list(self._uncut.items()):
            self._notes.take_back()
            self._recover(Path(path), length)
            del self._uncut[path]

    def _current(self) -> OutputFile:
        """Return the open file, a new one if it is time."""
        if self._file is not None and not self._file.is_there(self.name):
            self._end_file()
        if self._file is not None and time.monotonic() - self._began >= self._roll_seconds:
            self._end_file()
        if self._file is None:
            file = self._new_file()
            try:
                # The note knows the file before anything is in it: a crash leaves nothing that nobody cuts.
                self._note(file)
                sync_directory(file.path.parent)
            except BaseException:
                file.close()
                with contextlib.suppress(OSError):  # else each attempt would leave an empty one
                    file.path.unlink()
                raise
            self._file, self._began = file, time.monotonic()
        return self._file

    def _new_file(self) -> OutputFile:
        while True:
            self._count += 1
            series = time.strftime("%Y%m%d%H%M%S", time.localtime(self.now())) if self._by_time else str(self._series)
            extension = f".{self._extension}" if self._extension else ""
            try:
                return OutputFile(self._directory / f"{self._prefix}{series}-{self._count}{extension}")
            except FileExistsError:
                continue

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def idle(self) -> None:
        """End the file if it is time; see `BatchSink.idle`."""
        if time.monotonic() - self._began >= self._roll_seconds:
            self._end_file()

    def due_seconds(self) -> float:
        """Return when the file ends; see `Sink.due_seconds`."""
        return float("inf") if self._file is None else max(0.0, self._began + self._roll_seconds - time.monotonic())

    def close(self) -> None:
        """Close the file; see `Sink.close`."""
        try:
            self._end_file()
        finally:
            self._notes.close()
