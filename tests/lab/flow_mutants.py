"""The package, broken on purpose where an agent tails files and writes files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.flow import slot_file
from spillable_stream.flow.durable_file import read_file
from spillable_stream.flow.sinks.bucket_sink import BucketSink
from spillable_stream.flow.sinks.file_roll import FileRoll
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.flow.sinks.written import NotedEvents, NoteFile
from spillable_stream.flow.slot_file import SlotFile, newest_value
from spillable_stream.flow.sources.taildir import TailDir
from spillable_stream.flow.sources.tailed_files import TailedFiles
from tests.lab.patching import Patch, patch

__all__ = ["FLOW_MUTANTS"]


def store_the_position_before_the_put() -> list[Patch]:
    """The position file is behind a batch before the channels have it."""

    def make(real: Any) -> Any:
        def _cut(self: TailDir, piece: Any) -> Any:
            held = real(self, piece)
            before, held.file.mark = held.file.mark, held.after
            self._settled += 1
            self._save_all()
            held.file.mark = before
            self._settled -= 1
            return held

        return _cut

    return [patch(TailDir, "_cut", make)]


def commit_a_take_before_it_is_written() -> list[Patch]:
    """A sink commits its take, and then writes the events and notes them."""
    committed: set[int] = set()

    def early(real: Any) -> Any:
        def write(self: Any, taken: Any) -> None:
            taken.transaction.commit()
            committed.add(id(taken.transaction))
            real(self, taken)

        return write

    def once(real: Any) -> Any:
        def commit(self: TakeTransaction) -> None:
            if id(self) in committed:
                committed.discard(id(self))
            else:
                real(self)

        return commit

    return [patch(FileRoll, "write", early), patch(BucketSink, "write", early), patch(TakeTransaction, "commit", once)]


def forget_the_file_in_use() -> list[Patch]:
    """A restart does not cut the file that was being written, nor gives it its name."""

    def make(real: Any) -> Any:
        def read(self: NoteFile, channel: Any) -> Any:
            note = real(self, channel)
            return None if note is None else replace(note, files={})

        return read

    return [patch(NoteFile, "read", make)]


def note_the_last_batch_alone() -> list[Patch]:
    """A sink's note says nothing of what an earlier note named, though no commit has taken that yet."""
    return [patch(NotedEvents, "add", lambda real: lambda self, ranges=(): tuple(ranges))]


def take_half_a_copy_for_a_new_file() -> list[Patch]:
    """A copy that is seen before it is whole is read from its beginning."""
    return [patch(TailedFiles, "_whole_of", lambda real: lambda self, file: None)]


def believe_a_torn_slot() -> list[Patch]:
    """The slot with the highest number counts, whatever its checksum says."""
    return [patch(slot_file, "_parsed", lambda real: lambda slot: (int(slot[:16] or b"0", 16), slot[26:].rstrip()))]


def write_over_one_slot() -> list[Patch]:
    """A note goes over the one before, and a crash in between leaves neither."""

    def make(real: Any) -> Any:
        def write(self: SlotFile, value: bytes) -> None:
            real(self, value)
            self._number += self._number % 2  # the next one is as odd as this one

        return write

    return [patch(SlotFile, "write", make)]


def believe_the_page_cache() -> list[Patch]:
    """A restart acts on a note that a killed process had written and not synced."""

    def make(_: Any) -> Any:
        def read(self: SlotFile) -> bytes | None:
            data = read_file(self.path)
            return None if data is None else newest_value(data)

        return read

    return [patch(SlotFile, "read", make)]


def note_what_is_not_synced() -> list[Patch]:
    """A sink notes how long its file is before that is on the disk."""
    return [patch(OutputFile, "sync", lambda real: lambda self: None)]


FLOW_MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    f.__name__.replace("_", " "): f
    for f in (
        store_the_position_before_the_put,
        commit_a_take_before_it_is_written,
        forget_the_file_in_use,
        note_the_last_batch_alone,
        take_half_a_copy_for_a_new_file,
        believe_a_torn_slot,
        write_over_one_slot,
        believe_the_page_cache,
        note_what_is_not_synced,
    )
}
