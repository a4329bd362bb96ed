"""What the sinks hdfs and parquet share: files by path, opened, filled, closed and named; each event once.

A file that can be cut counts batch by batch: written, synced, noted, and the take committed. Any other file counts when
it is closed: its events stay claimed until then, are noted together with its name, and are committed when it has the
name. So after a crash a file either is there, and its events are skipped, or it is not, and they come again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.arguments import path_text
from spillable_stream.channel.channel import Channel
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.taken_events import id_column
from spillable_stream.errors import GroupOwnedError, SpillableError, StorageError
from spillable_stream.flow.durable_file import sync_directory
from spillable_stream.flow.sinks import destinations
from spillable_stream.flow.sinks.appended_batch import AppendedBatch
from spillable_stream.flow.sinks.base import BatchSink, Sink, Taken
from spillable_stream.flow.sinks.bucket_files import BucketFiles
from spillable_stream.flow.sinks.bucket_notes import BucketNotes
from spillable_stream.flow.sinks.buckets import Bucketing, BucketPart, Names, RollRules, Times
from spillable_stream.flow.sinks.destinations import Files, Resolved
from spillable_stream.flow.sinks.naming import Naming
from spillable_stream.flow.sinks.open_file import Content, OpenFile
from spillable_stream.flow.sinks.open_files import OpenFiles
from spillable_stream.flow.sinks.output_directory import OutputDirectory
from spillable_stream.flow.sinks.written import WrittenEvents, ranges_of, without
from spillable_stream.flow.sources.base import Status
from spillable_stream.format.batch import fit_batch
from spillable_stream.log_records import fields, log_of
from spillable_stream.state.ranges import Range, count_of

__all__ = ["BucketSink"]

_log = log_of("spillable_stream.flow")


class BucketSink(BatchSink):
    """A sink that divides events among files.

    Args:
        path: the directory, with escapes.
        prefix: what the names of files begin with, with escapes.
        names: the rest of the names.
        rolling: when a file is full.
        times: which time the path and the names show.
        content: makes the bytes of a file.
        can_be_cut: whether a file is as good as any other when it is cut between two batches.
        max_open_files: how many are open at most; the one that was written first is closed.
        close_tries: how often the naming of a file is tried; 0 for no limit.
        retry_interval: the wait between two tries, in seconds.
        batch_size: how many events a take has at most.
        channel: the name of the channel, for `Agent`.
        now: the clock, in seconds since 1970.
    """

    keeps_note = True

    def __init__(
        self,
        path: str,
        prefix: str,
        *,
        names: Names,
        rolling: RollRules,
        times: Times,
        content: Callable[[], Content],
        can_be_cut: bool,
        max_open_files: int,
        close_tries: int,
        retry_interval: int,
        batch_size: int,
        channel: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(batch_size, channel)
        self.now = now
        path_text("path", path or None)
        self._path, self._prefix = path, prefix
        self._names, self._rolling, self._times, self._content = names, rolling, times, content
        self._can_be_cut = can_be_cut
        self._open = OpenFiles(rolling, max_open_files)
        self._naming = Naming(close_tries, retry_interval)
        self._ending: list[OpenFile] = []  # that an interrupt must not leave half ended
        self._failed: AppendedBatch | None = None
        self._consumer: Consumer | None = None
        self._place: OutputDirectory | None = None  # where the files are this host's
        self._is_opened = self._appends = False
        Bucketing(f"{path}/{prefix}", times)  # so that a wrong option is refused at once

    # ── start and end ───────────────────────────────────────────────────────────────────────

    def resolve(self) -> Resolved:
        """Return where the path leads."""
        return destinations.resolve(self._path, self.system, os.environ)

    def succeed(self, before: Sink) -> None:
        """Learn that the directory was there; see `Sink.succeed`."""
        if isinstance(before, BucketSink):
            self._place = before._place

    def open(self, channel: Channel, written: WrittenEvents | None = None) -> None:
        """Finish what a crash left; see `Sink.open`.

        Raises:
            CorruptionError: the sink's note is damaged.
            StorageError: the directory can't be used.
        """
        super().open(channel, written)
        found = self.resolve()
        self._files: Files = found.files
        self._appends = found.is_local and self._can_be_cut
        counter = int(self.now() * 1000)
        self._made = BucketFiles(found.files, self._names, self._content, counter, can_be_cut=self._appends)
        self._bucketing = Bucketing(f"{found.path.rstrip('/')}/{self._prefix}", self._times, self._made.takes)
        self._open.clear()
        self._ending.clear()
        self._failed = None
        self._naming.begin(self.name)
        self._consumer = None
        before, self._place = self._place, OutputDirectory.of_pattern(found.path) if found.is_local else None
        if self._place is not None:
            if before is not None and before.path == self._place.path:
                self._place = before
            self._place.make()
        self._notes = BucketNotes(
            self.name,
            self._home() if self._place is None else self._place.path,
            channel,
            self.consumer_group,
            self.written,
            self._files,
            self._names,
        )
        self._is_opened = True
        self._notes.recover()

    def _home(self) -> Path:
        """Return where on this host the note is of files that are elsewhere."""
        return Path(self.system.get("spillable.data.dir", "~/.local/share/spillable-stream")).expanduser()

    def close(self) -> None:
        """Close the files, and commit what they have; see `Sink.close`."""
        if not self._is_opened:
            return
        try:
            self._undo_failed()
            self._made.remove_failed()
            self._finish_ending()
            for file in list(self._open):
                self._finish(file)
            self._naming.again(at_end=True)
        finally:
            self._give_up_files()  # a store would have them, whole, when their streams are forgotten
            self._notes.close()

    # ── a round ─────────────────────────────────────────────────────────────────────────────

    def process(self) -> Status:
        """Take and write a batch; see `Sink.process`."""
        if self._place is not None:
            self._place.require()
        if not self._appends:
            self._own()
        self._undo_failed()
        self._made.remove_failed()
        self._finish_ending()
        for file in self._open.over(time.monotonic()):
            self._finish(file)
        self._naming.again()
        self._naming.require_few()
        status = super().process() if self._appends else self._process_claimed()
        self.trouble: str = self._naming.trouble  # no event is one: there is none, or they were written
        return status

    def idle(self) -> None:
        """Nothing: `process` ends files in time."""

    def due_seconds(self) -> float:
        """Return when a file ends; see `Sink.due_seconds`."""
        return max(0.0, min(self._open.next_end(), self._naming.next_at()) - time.monotonic())

    def held_events(self) -> int:
        """See `Sink.held_events`."""
        return sum(count_of(f.ranges) for f in self._open)

    def _finish_surplus(self) -> None:
        for file in self._open.surplus():
            self._finish(file)

    def _divide(self, batch: pa.RecordBatch, ids: pa.Array) -> list[BucketPart]:
        """Return the events by place, without those that were buried.

        Raises:
            StorageError: no file can have some of them, and there is no dead-letter channel.
        """
        parts, misfits = self._bucketing.divide(batch, ids)
        for part, why in misfits:
            if not self.bury(part.batch, part.ids, why):
                raise StorageError(f"{self.name}: {self.trouble}")
        return parts

    def _at(self, place: str) -> OpenFile | None:
        """Return the open file of a place, if there is one, and nobody has removed or renamed it."""
        file = self._open.get(place)
        if file is None or file.appended is None or file.appended.is_there(self.name):
            return file
        self._open.forget(file)
        file.appended.close()
        return None

    def _create(self, file: OpenFile) -> None:
        self._made.create(file)
        self.counters.connection_created_count += 1

    # ── files that can be cut ───────────────────────────────────────────────────────────────

    def write(self, taken: Taken) -> None:
        """Write a batch; see `BatchSink.write`."""
        batch, noted = AppendedBatch(taken.ranges), self._notes.last
        try:
            for part in self._divide(taken.batch, taken.ids):
                before = self._at(part.place)
                for file, events, _, size in self._open.pieces(part):
                    if file is None:
                        file = self._made.new(part.place)
                        batch.fresh.append(file)
                        if before is not None:
                            self._ending.append(before)
                        before = file
                    batch.add(file, events, size)
            self._write_all(batch)
            self._keep(batch)
        except BaseException:
            if self._notes.names(batch.ranges, noted):  # an interrupt came after the note
                self._keep(batch)
                raise
            self._ending.clear()
            self._failed = batch
            try:
                self._undo_failed()
            except SpillableError as e:
                _log.error("%s: %s; it is tried again", self.name, e, extra=fields(component=self.name))
            raise
        self._finish_ending()
        self._finish_surplus()

    def _keep(self, batch: AppendedBatch) -> None:
        """Let what the note names count; also once more, where that was interrupted."""
        self.written.add(batch.ranges)
        for file in batch.fresh:
            self._open.add(file)
        batch.keep(time.monotonic())

    def _write_all(self, batch: AppendedBatch) -> None:
        if batch.fresh:
            self._note_lengths([*self._open, *batch.fresh], [])
            for file in batch.fresh:
                self._create(file)
            for directory in {Path(f.in_use).parent for f in batch.fresh}:
                sync_directory(directory)
        batch.write()
        self._note_lengths([*self._open, *batch.fresh], batch.ranges)

    def _note_lengths(self, files: Iterable[OpenFile], ranges: list[Range]) -> None:
        lengths = {f.in_use: f.appended.size_bytes if f.appended is not None else 0 for f in files}
        lengths |= self._naming.lengths()
        self._notes.write_lengths(lengths, ranges)

    def _undo_failed(self) -> None:
        """Undo what a failed batch has written, once no note names it.

        Raises:
            StorageError: the file system refused; nothing must be written or named before it is tried again.
        """
        if self._failed is not None:
            self._notes.take_back()
            self._failed.undo()
            self._failed = None

    def _finish(self, file: OpenFile) -> None:
        """Close a file, and give it its name."""
        self._ending.append(file)
        self._finish_ending()

    def _finish_ending(self) -> None:
        """Close files and give them their names, also where an interrupt had left one half ended."""
        while self._ending:
            file = self._ending[0]
            self._open.forget(file)
            if file.stream is not None:
                self._publish(file)
            else:
                assert file.appended is not None
                file.appended.close()
                self._made.have_own_name(file)
                self._naming.name(file)
            self.counters.connection_closed_count += 1
            del self._ending[0]

    # ── files that count when they are closed ───────────────────────────────────────────────

    def _own(self) -> None:
        """Own the group. What another consumer had claimed comes again: the open files of it are removed."""
        with self.asking_channel():
            consumer = self.channel.consumer(self.consumer_group)
        if consumer is self._consumer:
            return
        self._give_up_files()
        self._made.remove_failed()
        self._consumer = consumer

    def _give_up_files(self) -> None:
        """Remove the files that count when they are closed, and are not: their events come again."""
        for file in dict.fromkeys([*self._ending, *self._open]):
            if file.stream is None:
                continue
            if file.is_published:  # its events are skipped, also where an interrupt came before that was said
                self.written.add(file.ranges)
                self._notes.closed(file)
                self._ending.remove(file)
            else:
                self._discard(file, file.in_use)

    def _process_claimed(self) -> Status:
        consumer = self._consumer
        assert consumer is not None
        with self.asking_channel():
            claimed = consumer.claim(self.batch_size)
        self.found_nothing: bool = not claimed
        count = count_of(claimed)
        self.counters.took(count, self.batch_size)
        if not claimed:
            return Status.BACKOFF
        left = list(claimed)
        try:
            batch, ids = self._read(consumer, claimed)
            keep = self.written.missing(pa.chunked_array([ids])) if self.written else None
            if keep is not None:
                self._commit(consumer, ranges_of(ids.filter(pc.invert(keep))))
                batch, ids = batch.filter(keep), ids.filter(keep)
                left = ranges_of(ids)
            parts = self._divide(batch, ids)
            divided = [r for part in parts for r in ranges_of(part.ids)]
            if buried := without(left, divided):
                self._commit(consumer, buried)
            left = divided
            for part in parts:
                for file, piece, piece_ids, size in self._open.pieces(part):
                    ranges = ranges_of(piece_ids)
                    left = without(left, ranges)
                    self._fill(part.place, file, piece, ranges, size)
        except BaseException:
            self.counters.event_write_fail += 1
            consumer.release(left)
            raise
        self.counters.event_drain_success_count += count
        self.exit.passed(batch)
        self.trouble = ""
        self._finish_surplus()
        return Status.READY

    def _commit(self, consumer: Consumer, ranges: list[Range]) -> None:
        """Commit events that are in their files, or among the dead letters."""
        with self.asking_channel():
            consumer.commit(ranges)
        self.written.remove(ranges)

    def _read(self, consumer: Consumer, ranges: list[Range]) -> tuple[pa.RecordBatch, pa.Array]:
        with self.asking_channel():
            found, schema = consumer.read(ranges), self.channel.schema
        table = pa.Table.from_batches([fit_batch(r.batch, schema) for r in found], schema).combine_chunks()
        return table.to_batches()[0], pa.concat_arrays([id_column(r) for r in found])

    def _fill(self, place: str, file: OpenFile | None, batch: pa.RecordBatch, ranges: list[Range], size: int) -> None:
        """Write events into a file, a new one if there is none. One that fails is removed; its events come again."""
        assert self._consumer is not None
        if file is None:
            try:
                if (before := self._open.get(place)) is not None:
                    self._finish(before)
                file = self._made.new(place)
                self._notes.write_open([*self._open, file])
                self._create(file)
            except BaseException:
                self._consumer.release(ranges)
                raise
            self._open.add(file)
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

    def _publish(self, file: OpenFile) -> None:
        """Close a file, give it its name, and commit its events; the rest of it where that was interrupted."""
        assert file.stream is not None and self._consumer is not None
        if not file.is_published:
            self._require_owner(file)
            self._made.have_own_name(file)
            try:
                file.stream.write(bytes(file.content.end()))
                self._notes.write_open(self._open, closing=file)
                self._files.publish(file.stream, file.in_use, file.final)
                file.is_published = True
            except BaseException:
                if not file.is_published:
                    self._discard(file, file.in_use, file.final)  # it may have its name though the file system says no
                raise
        self.written.add(file.ranges)
        self._notes.closed(file)
        try:
            with self.asking_channel():
                self._consumer.commit(file.ranges)
        except BaseException:
            self._ending.remove(file)
            self._consumer.release(file.ranges)  # they come again, and are skipped
            self._note_published(file)
            raise
        ranges, file.ranges = file.ranges, []
        self.written.remove(ranges)

    def _require_owner(self, file: OpenFile) -> None:
        """Refuse to name a file whose events are another owner's by now, which writes them, too.

        Where the channel can't say, the file stays as it is, for a later round.
        """
        assert self._consumer is not None
        try:
            with self.asking_channel():
                self._consumer.require_owner()
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
        assert file.stream is not None and self._consumer is not None
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
            self._consumer.release(file.ranges)
            file.ranges = []

    def _warn_of_failed(self, text: str, path: str) -> None:
        _log.warning("%s: %s", self.name, text, extra=fields(component=self.name, file=path))
