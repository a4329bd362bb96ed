"""What a bucket sink notes: which files it has open, and which events it has written and may not have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from spillable_stream.channel.channel import Channel
from spillable_stream.flow.durable_file import make_directory, sync_directory
from spillable_stream.flow.sinks.buckets import Names
from spillable_stream.flow.sinks.destinations import Files
from spillable_stream.flow.sinks.naming import rename
from spillable_stream.flow.sinks.open_file import OpenFile
from spillable_stream.flow.sinks.output_file import cut_back
from spillable_stream.flow.sinks.written import Note, NotedEvents, NoteFile, WrittenEvents
from spillable_stream.log_records import log_of
from spillable_stream.state.ranges import Range

__all__ = ["BucketNotes"]

_log = log_of("spillable_stream.flow")

_WHOLE = -1  # the length of a file that counts when it is closed


class BucketNotes:
    """The note of a sink, from that of an earlier run on.

    Args:
        sink: the sink's name.
        directory: where the note is; created if it is missing.
        channel: the channel.
        group: the group that takes from it.
        written: the channel's events that are written and not committed; those of the note are added.
        files: the sink's files.
        names: how they are named.

    Raises:
        CorruptionError: the note is damaged.
        StorageError: it can't be read.
    """

    def __init__(
        self,
        sink: str,
        directory: Path,
        channel: Channel,
        group: str,
        written: WrittenEvents,
        files: Files,
        names: Names,
    ) -> None:
        make_directory(directory)
        self._sink, self._files, self._names = sink, files, names
        self._file = NoteFile(directory, sink)
        self._found = self._file.read(channel) or Note(channel.uuid)
        has_closed = self._found.closing and files.is_published(self._found.closing)
        self._events = NotedEvents(
            written,
            channel,
            group,
            self._found,
            with_closing=bool(has_closed),
            in_use=(names.in_use_prefix, names.in_use_suffix),
        )

    def recover(self) -> None:
        """Cut and name, or remove, the files that an earlier run had open; its names may have been other ones."""
        names = self._names if self._found.in_use is None else Names("", *self._found.in_use)
        for in_use, length in self._found.files.items():
            if length == _WHOLE:
                self._files.remove(in_use)
                continue
            try:
                whole = cut_back(Path(in_use), length)
            except FileNotFoundError:
                parent = Path(in_use).parent
                if self._files.exists(str(parent)):  # it has its name, which a kill may have left without a sync
                    sync_directory(parent)
                continue
            if not whole:
                _log.of(self._sink, file=in_use).error(
                    "%s is shorter than the %d bytes that were written; it was changed", in_use, length
                )
            if length == 0:
                Path(in_use).unlink()
            else:
                rename(in_use, names.final_of(in_use))

    def write_lengths(self, lengths: Mapping[str, int], ranges: Iterable[Range]) -> None:
        """Note files that count batch by batch.

        Args:
            lengths: the length of each by its name in use, in bytes.
            ranges: the events that are being written.
        """
        self._file.write(self._events.note(lengths, ranges))

    @property
    def last(self) -> Note | None:
        """The note that was written last; see `NoteFile.last`."""
        return self._file.last

    def names(self, ranges: Iterable[Range], since: Note | None) -> bool:
        """Tell whether a restart finds that some events are written; see `NoteFile.names`."""
        return self._file.names(ranges, since)

    def take_back(self) -> None:
        """Have a restart find the last note that was written; see `NoteFile.take_back`."""
        self._file.take_back()

    def close(self) -> None:
        """Close the file; see `NoteFile.close`."""
        self._file.close()

    def write_open(self, files: Iterable[OpenFile], *, closing: OpenFile | None = None) -> None:
        """Note files that count when they are closed.

        Args:
            files: those that are open.
            closing: one that gets its name now.
        """
        lengths = {file.in_use: _WHOLE for file in files}
        if closing is None:
            self._file.write(self._events.note(lengths))
            return
        lengths[closing.in_use] = _WHOLE
        lengths.pop(closing.final, None)  # a store's file has its name from the beginning
        self._file.write(self._events.note(lengths, closing=closing.final, closing_ranges=tuple(closing.ranges)))

    def closed(self, file: OpenFile) -> None:
        """Name the events of a file that has its name in all notes to come, until their take is committed."""
        self._events.add(file.ranges)
