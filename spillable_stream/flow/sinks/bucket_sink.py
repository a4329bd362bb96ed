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
from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.flow.durable_file import sync_directory
from spillable_stream.flow.sinks import destinations
from spillable_stream.flow.sinks.appended_batch import AppendedBatch
from spillable_stream.flow.sinks.base import BatchSink, Sink, Taken
from spillable_stream.flow.sinks.bucket_files import BucketFiles
from spillable_stream.flow.sinks.bucket_notes import BucketNotes
from spillable_stream.flow.sinks.buckets import Bucketing, BucketPart, Names, RollRules, Times
from spillable_stream.flow.sinks.claimed_files import ClaimedFiles
from spillable_stream.flow.sinks.destinations import Resolved
from spillable_stream.flow.sinks.naming import Naming
from spillable_stream.flow.sinks.open_file import Content, OpenFile
from spillable_stream.flow.sinks.open_files import OpenFiles
from spillable_stream.flow.sinks.output_directory import OutputDirectory
from spillable_stream.flow.sinks.written import WrittenEvents, ranges_of, without
from spillable_stream.flow.sources.base import Status
from spillable_stream.log_records import log_of
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
        self._appends = found.is_local and self._can_be_cut
        counter = int(self.now() * 1000)
        self._made = BucketFiles(found.files, self._names, self._content, counter, can_be_cut=self._appends)
        self._bucketing = Bucketing(f"{found.path.rstrip('/')}/{self._prefix}", self._times, self._made.takes)
        self._open.clear()
        self._ending.clear()
        self._failed = None
        self._naming.begin(self.name)
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
            found.files,
            self._names,
        )
        self._claimed = ClaimedFiles(self, self._open, self._made, self._notes)
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
            self._claimed.give_up()  # a store would have them, whole, when their streams are forgotten
            self._notes.close()

    # ── a round ─────────────────────────────────────────────────────────────────────────────

    def process(self) -> Status:
        """Take and write a batch; see `Sink.process`."""
        if self._place is not None:
            self._place.require()
        if not self._appends:
            with self.asking_channel():
                consumer = self.channel.consumer(self.consumer_group)
            self._claimed.own(consumer)
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

    def _finish(self, file: OpenFile) -> None:
        """Close a file, and give it its name."""
        if not self._appends:
            self._claimed.finish(file)
            return
        self._ending.append(file)
        self._finish_ending()

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
                _log.of(self.name).error("%s; it is tried again", e)
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
                self._made.create(file)
                self.counters.connection_created_count += 1
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

    def _finish_ending(self) -> None:
        """Close files and give them their names, also where an interrupt had left one half ended."""
        while self._ending:
            file = self._ending[0]
            self._open.forget(file)
            assert file.appended is not None
            file.appended.close()
            self._made.have_own_name(file)
            self._naming.name(file)
            self.counters.connection_closed_count += 1
            del self._ending[0]
        self._claimed.finish_ending()

    # ── files that count when they are closed ───────────────────────────────────────────────

    def _process_claimed(self) -> Status:
        claimed = self._claimed.claim(self.batch_size)
        self.found_nothing: bool = not claimed
        count = count_of(claimed)
        self.counters.took(count, self.batch_size)
        if not claimed:
            return Status.BACKOFF
        left = list(claimed)
        try:
            batch, ids = self._claimed.read(claimed)
            keep = self.written.missing(pa.chunked_array([ids])) if self.written else None
            if keep is not None:
                self._claimed.commit(ranges_of(ids.filter(pc.invert(keep))))
                batch, ids = batch.filter(keep), ids.filter(keep)
                left = ranges_of(ids)
            parts = self._divide(batch, ids)
            divided = [r for part in parts for r in ranges_of(part.ids)]
            if buried := without(left, divided):
                self._claimed.commit(buried)
            left = divided
            for part in parts:
                for file, piece, piece_ids, size in self._open.pieces(part):
                    ranges = ranges_of(piece_ids)
                    left = without(left, ranges)
                    self._claimed.fill(part.place, file, piece, ranges, size)
        except BaseException:
            self.counters.event_write_fail += 1
            self._claimed.release(left)
            raise
        self.counters.event_drain_success_count += count
        self.exit.passed(batch)
        self.trouble = ""
        self._finish_surplus()
        return Status.READY
