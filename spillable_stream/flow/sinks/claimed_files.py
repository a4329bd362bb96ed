"""The files of a sink that count when they are closed: their events are claimed until then, and committed with them.

::

    claimed ──▶ in a file ──▶ closed, noted and named ──▶ committed
       ▲            │                     │
       └─ released ─┴─ it failed, removed └─ the commit failed: they come again, and are skipped
"""

from __future__ import annotations

import time

import pyarrow as pa

from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.taken_events import id_column
from spillable_stream.errors import GroupOwnedError, SpillableError
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.bucket_files import BucketFiles
from spillable_stream.flow.sinks.bucket_notes import BucketNotes
from spillable_stream.flow.sinks.open_file import OpenFile
from spillable_stream.flow.sinks.open_files import OpenFiles
from spillable_stream.format.batch import fit_batch
from spillable_stream.log_records import log_of
from spillable_stream.state.ranges import Range

__all__ = ["ClaimedFiles"]

_log = log_of("spillable_stream.flow")


class ClaimedFiles:
    """Claims events for files, and fills, closes and names these. `own` comes first.

    Args:
        sink: the sink, which is open.
        open_files: its open files.
        made: creates and removes them.
        notes: the sink's note.
    """

    def __init__(self, sink: Sink, open_files: OpenFiles, made: BucketFiles, notes: BucketNotes) -> None:
        self._sink, self._open, self._made, self._notes = sink, open_files, made, notes
        self._ending: list[OpenFile] = []  # that an interrupt must not leave half ended
        self._consumer: Consumer | None = None

    @property
    def _owner(self) -> Consumer:
        assert self._consumer is not None, "own() comes first"
        return self._consumer

    def own(self, consumer: Consumer) -> None:
        """Claim by a consumer. What another one had claimed comes again: the open files of it are removed.

        Args:
            consumer: the consumer, which owns the group.
        """
        if consumer is self._consumer:
            return
        self.give_up()
        self._made.remove_failed()
        self._consumer = consumer

    def give_up(self) -> None:
        """Remove the files that are not closed: their events come again."""
        for file in dict.fromkeys([*self._ending, *self._open]):
            if file.stream is None:
                continue
            if file.is_published:  # its events are skipped, also where an interrupt came before that was said
                self._sink.written.add(file.ranges)
                self._notes.closed(file)
                self._ending.remove(file)
            else:
                self._discard(file, file.in_use)

    # ── events ──────────────────────────────────────────────────────────────────────────────

    def claim(self, most_events: int) -> list[Range]:
        """Claim some events.

        Args:
            most_events: how many, at most.
        """
        with self._sink.asking_channel():
            return self._owner.claim(most_events)

    def read(self, ranges: list[Range]) -> tuple[pa.RecordBatch, pa.Array]:
        """Return claimed events, and their IDs."""
        with self._sink.asking_channel():
            found, schema = self._owner.read(ranges), self._sink.channel.schema
        table = pa.Table.from_batches([fit_batch(r.batch, schema) for r in found], schema).combine_chunks()
        return table.to_batches()[0], pa.concat_arrays([id_column(r) for r in found])

    def commit(self, ranges: list[Range]) -> None:
        """Commit events that are in their files, or among the dead letters."""
        with self._sink.asking_channel():
            self._owner.commit(ranges)
        self._sink.written.remove(ranges)

    def release(self, ranges: list[Range]) -> None:
        """Let claimed events come again."""
        self._owner.release(ranges)

    # ── files ───────────────────────────────────────────────────────────────────────────────

    def fill(self, place: str, file: OpenFile | None, batch: pa.RecordBatch, ranges: list[Range], size: int) -> None:
        """Write events into a file, a new one if there is none. One that fails is removed; its events come again.

        Args:
            place: the place of the file.
            file: the file, if there is one.
            batch: the events.
            ranges: their IDs.
            size: the bytes of their bodies.
        """
        if file is None:
            file = self._begun(place, ranges)
        file.ranges += ranges
        try:
            assert file.stream is not None
            if file.events == 0:
                file.stream.write(bytes(file.content.begin()))
            file.stream.write(bytes(file.content.encode(batch)))
        except BaseException:
            self._discard(file, file.in_use)
            raise
        file.wrote(batch.num_rows, size, time.monotonic())

    def _begun(self, place: str, ranges: list[Range]) -> OpenFile:
        """Return a new file for some events, which come again where that fails."""
        try:
            if (before := self._open.get(place)) is not None:
                self.finish(before)
            file = self._made.new(place)
            self._notes.write_open([*self._open, file])
            self._made.create(file)
            self._sink.counters.connection_created_count += 1
        except BaseException:
            self.release(ranges)
            raise
        self._open.add(file)
        return file

    def finish(self, file: OpenFile) -> None:
        """Close a file, give it its name, and commit its events."""
        self._ending.append(file)
        self.finish_ending()

    def finish_ending(self) -> None:
        """Do the rest for files that an interrupt has left half ended."""
        while self._ending:
            file = self._ending[0]
            self._open.forget(file)
            self._publish(file)
            self._sink.counters.connection_closed_count += 1
            del self._ending[0]

    def _publish(self, file: OpenFile) -> None:
        assert file.stream is not None
        if not file.is_published:
            self._require_owner(file)
            self._made.have_own_name(file)
            try:
                file.stream.write(bytes(file.content.end()))
                self._notes.write_open(self._open, closing=file)
                self._made.publish(file)
            except BaseException:
                if not file.is_published:
                    self._discard(file, file.in_use, file.final)  # it may have its name though the file system says no
                raise
        self._sink.written.add(file.ranges)
        self._notes.closed(file)
        try:
            with self._sink.asking_channel():
                self._owner.commit(file.ranges)
        except BaseException:
            self._ending.remove(file)
            self.release(file.ranges)  # they come again, and are skipped
            self._note_published(file)
            raise
        ranges, file.ranges = file.ranges, []
        self._sink.written.remove(ranges)

    def _require_owner(self, file: OpenFile) -> None:
        """Refuse to name a file whose events are another owner's by now, which writes them, too.

        Where the channel can't say, the file stays as it is, for a later round.
        """
        try:
            with self._sink.asking_channel():
                self._owner.require_owner()
        except GroupOwnedError:
            self._discard(file, file.in_use)
            raise

    def _note_published(self, file: OpenFile) -> None:
        """Let a restart skip the events of a file that has its name, also where somebody has moved it away by then."""
        try:
            self._notes.write_open(self._open)
        except SpillableError as e:
            self._warn_of_failed(
                f"{e}; if {file.final} is moved away before its events are committed, a restart writes them again",
                file.final,
            )

    def _discard(self, file: OpenFile, *paths: str) -> None:
        """Remove a file that failed by the names that it may have, and give its events back."""
        assert file.stream is not None
        self._open.forget(file)
        self._ending = [other for other in self._ending if other is not file]
        self._made.fail(paths)
        try:
            try:
                file.stream.close()  # Arrow would do it later, and an object would be there
            except Exception as e:
                self._warn_of_failed(f"{file.in_use} could not be closed; its events come again: {e}", file.in_use)
            try:
                self._made.remove_failed()
            except SpillableError as e:
                self._warn_of_failed(f"{e}; that is tried again, and its events come when it is gone", file.in_use)
        finally:
            self.release(file.ranges)
            file.ranges = []

    def _warn_of_failed(self, text: str, path: str) -> None:
        _log.of(self._sink.name, file=path).warning("%s", text)
