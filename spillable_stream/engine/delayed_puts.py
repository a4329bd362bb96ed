"""Delayed events of a put transaction, on their way into side files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from spillable_stream.format.batch import encode_batch
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.format.dues import dues_frame
from spillable_stream.format.frame import Frame, total_size
from spillable_stream.format.views import without_others
from spillable_stream.log.delayed_files import DelayedFiles, DelayedWrite
from spillable_stream.state.delays import DelayedFile, Delays
from spillable_stream.state.spill_rules import TierUsage

if TYPE_CHECKING:
    from spillable_stream.engine.append_plan import AppendPlan

__all__ = [
    "FULL_BYTES",
    "DelayPlan",
    "Delayed",
    "DelayedChunk",
    "DelayedPuts",
    "StagedDelayed",
    "StagedRuns",
    "Staging",
    "chunks_of",
    "use_of",
]

FULL_BYTES = 16 << 20
"""A side file gets no more after that, so what is read when it is due is bounded."""

_FRAME_BYTES = 256 << 10  # what is read for one event that is due
_FRAME_EVENTS = 4096
_RUN_BYTES = 80
_NAMED_RUN_BYTES = 192


class DelayedChunk(NamedTuple):
    """Delayed events that belong to one stretch of time.

    Args:
        begin_ms: where the stretch begins, in milliseconds since 1970.
        width_ms: how long it is.
        first_ms: when the first of the events is due.
        frames: the DUES frame of the events, and their PUT frame.
    """

    begin_ms: int
    width_ms: int
    first_ms: int
    frames: tuple[Frame, Frame]

    @property
    def size_bytes(self) -> int:
        """How much of a file they take."""
        return total_size(self.frames)


def chunks_of(
    dues: Sequence[int],
    batch: pa.RecordBatch,
    schema_id: int,
    ttl_us: int,
    compression: str,
    stretch: Callable[[int], tuple[int, int]],
    puts: Sequence[int] = (),
) -> Iterator[DelayedChunk]:
    """Yield events, encoded, each part with such as belong to one stretch of time.

    An event is in the stretch that its own due time says, also where the one of the events before it is not over: all
    that are due at once are in one, so their order does not depend on where a part ends.

    Args:
        dues: when each is due, in milliseconds since 1970, ascending.
        batch: the events, in the channel's schema.
        schema_id: its number.
        ttl_us: the ttl of each of them, in microseconds; 0 for none.
        compression: as `encode_batch` takes it.
        stretch: returns the begin and the width of the stretch that an event belongs to, by when it is due.
        puts: the number of each event's put, where they are of several.
    """
    start = 0
    while start < len(dues):
        begin_ms, width_ms = stretch(dues[start])
        until = min(bisect_left(dues, begin_ms + width_ms, lo=start), start + _FRAME_EVENTS)
        if stretch(dues[until - 1]) != (begin_ms, width_ms):  # the last ones belong to a wider one
            belong = partial(_is_beyond, dues, stretch, (begin_ms, width_ms))
            until = bisect_left(range(until), True, lo=start, key=belong)
        count = until - start
        part = without_others(batch.slice(start, count))
        while count > 1 and part.nbytes > _FRAME_BYTES:
            count = (count + 1) // 2
            part = without_others(part.slice(0, count))
        for put in encode_batch(part, schema_id, compression, ttl_us):
            due = dues[start : start + put.count]
            yield DelayedChunk(begin_ms, width_ms, due[0], (dues_frame(due, puts[start : start + put.count]), put))
            start += put.count


def _is_beyond(dues: Sequence[int], stretch: Callable[[int], tuple[int, int]], this: tuple[int, int], at: int) -> bool:
    return stretch(dues[at]) != this


def use_of(chunks: Sequence[DelayedChunk]) -> TierUsage:
    """Return the number of events and the size of their payloads."""
    puts = [chunk.frames[1] for chunk in chunks]
    return TierUsage(sum([put.count for put in puts]), sum([len(put.payload) for put in puts]))


class Delayed(Protocol):
    """The delayed events of one transaction, as its put sees them."""

    def use(self) -> TierUsage:
        """Return the number of events and the size of their payloads."""

    def commit_bytes(self) -> int:
        """Return how many bytes they add to the transaction's COMMIT, at most."""

    def place(self, plan: AppendPlan) -> list[DelayedRun]:
        """Plan where the events go, and return what the COMMIT says of that.

        Raises:
            StorageError: the storage refused.
        """


class StagedDelayed(Delayed, Protocol):
    """Delayed events that are written already."""

    @property
    def runs(self) -> Sequence[DelayedRun]:
        """What a COMMIT says of each side file; the file's number is not known before that."""


@dataclass(frozen=True, slots=True)
class StagedRuns:
    """Delayed events that are written already; the base of a `StagedDelayed`.

    Args:
        runs: what a COMMIT says of each side file; the file's number is not known before that.
    """

    runs: Sequence[DelayedRun]

    def use(self) -> TierUsage:
        """Return the number of events and the size of their payloads."""
        return TierUsage(sum([run.count for run in self.runs]), sum([run.payload_bytes for run in self.runs]))

    def commit_bytes(self) -> int:
        """Return how many bytes they add to the transaction's COMMIT, at most."""
        return _NAMED_RUN_BYTES * len(self.runs)


class Staging(Protocol):
    """The delayed events of one transaction that are written before its commit, since they are many."""

    def write(self, chunks: Sequence[DelayedChunk]) -> None:
        """Write events.

        Raises:
            StorageError: the storage refused. All that was written can only be discarded.
        """

    def finish(self) -> StagedDelayed:
        """Make durable what was written, and return what a put needs to name it.

        Raises:
            StorageError: the storage refused; it can only be discarded.
        """

    def close(self) -> None:
        """Let go of what was written, and keep it."""

    def discard(self) -> None:
        """Let go of what was written, and remove it."""


@dataclass(slots=True)
class DelayPlan:
    """What one append puts into side files.

    Args:
        files: the side files.
        delays: the events that wait, by the state that is appended to.

    Attributes:
        waiting_bytes: the size of the payloads that it puts there.
    """

    files: DelayedFiles
    delays: Delays
    waiting_bytes: int = 0
    _writes: list[DelayedWrite] = field(default_factory=list)
    _open: dict[tuple[int, int], DelayedWrite] = field(default_factory=dict)
    _next_number: int = 0

    def place(self, chunks: Sequence[DelayedChunk]) -> list[DelayedRun]:
        """Plan where the events of a transaction go, and return what its COMMIT says of that.

        Raises:
            StorageError: the file system refused.
        """
        runs: dict[int, DelayedRun] = {}
        for chunk in chunks:
            write = self._open.get(chunk[:2])
            if write is None or write.end >= FULL_BYTES or chunk.first_ms < write.least_ms:
                write = self._begin(chunk)
                self._writes.append(write)
                self._open[chunk[:2]] = write
                start = write.start
            else:
                start = write.end
            write.add(chunk.frames)
            put = chunk.frames[1]
            run = DelayedRun(write.number, *chunk[:2], start, write.end, put.count, len(put.payload), chunk.first_ms)
            self.waiting_bytes += run.payload_bytes
            before = runs.get(write.number)
            runs[write.number] = run if before is None else _joined(before, run)
        return list(runs.values())

    def adopt(self, runs: Sequence[DelayedRun]) -> list[DelayedRun]:
        """Return what a COMMIT says of side files that are written already; each gets a number."""
        self.waiting_bytes += sum([run.payload_bytes for run in runs])
        return [run._replace(file=self._new_number()) for run in runs]

    def mark(self) -> Callable[[], None]:
        """Return what takes back all that is placed from now on: a file may be named by its own COMMITs alone."""
        opened, number, waiting_bytes = dict(self._open), self._next_number, self.waiting_bytes
        ends = [(write, len(write.frames), write.end) for write in self._writes]

        def take_back() -> None:
            self._open, self._next_number, self._writes = opened, number, [placed for placed, _, _ in ends]
            self.waiting_bytes = waiting_bytes
            for placed, frames, end in ends:
                placed.end = end
                del placed.frames[frames:]

        return take_back

    def _begin(self, chunk: DelayedChunk) -> DelayedWrite:
        """Return an empty write to the newest file of a stretch, or to a new one if nothing may be added to that."""
        ours = (f for f in self.delays.files.values() if f[1:3] == chunk[:2])
        known = max(ours, key=lambda f: f.number, default=None)
        if known is not None and chunk[:2] not in self._open and self._is_open(known, chunk.first_ms):
            return DelayedWrite(known.number, known.end, known.delivered[0])
        write = DelayedWrite(self._new_number(), 0)
        write.add([self.files.header(write.number)])
        return write

    def _new_number(self) -> int:
        number = max(self._next_number, self.delays.next_number)
        # A crash may have left one, with a COMMIT that is found whole at the next one.
        while self.files.exists(number) or not self.files.has_room(number):
            number += 1
        self._next_number = number + 1
        return number

    def _is_open(self, file: DelayedFile, first_ms: int) -> bool:
        """Tell whether events may be added that are due from a time on: nothing is delivered that comes after them."""
        return not file.name and file.end < FULL_BYTES and first_ms >= file.delivered[0] and self._is_writable(file)

    def _is_writable(self, file: DelayedFile) -> bool:
        return self.files.is_whole(file) and self.files.has_room(file.number)

    def size_bytes(self) -> int:
        """Return how many bytes it writes."""
        return sum([write.end - write.start for write in self._writes])

    def write(self) -> None:
        """Write it all, durably, before the COMMITs that name it.

        Raises:
            StorageError: the file system refused.
        """
        self.files.write(self._writes)

    def take_back(self) -> None:
        """Take it back; the log has proven that no COMMIT names it, nor ever will."""
        self.files.take_back(self._writes)


@dataclass(slots=True)
class DelayedPuts:
    """The delayed events of one transaction, which go to side files on a disk. It implements `Delayed`.

    Args:
        files: the channel's side files.
        chunks: the events.
    """

    files: DelayedFiles
    chunks: list[DelayedChunk]

    def use(self) -> TierUsage:
        """Return the number of events and the size of their payloads."""
        return use_of(self.chunks)

    def commit_bytes(self) -> int:
        """Return how many bytes they add to the transaction's COMMIT, at most."""
        return _RUN_BYTES * len(self.chunks)

    def place(self, plan: AppendPlan) -> list[DelayedRun]:
        """Plan where the events go; see `Delayed.place`."""
        return plan.delay(self.files).place(self.chunks)

    def size_bytes(self) -> int:
        """Return how many bytes they take in side files, at most, but for the files' headers."""
        return sum([chunk.size_bytes for chunk in self.chunks])


def _joined(run: DelayedRun, following: DelayedRun) -> DelayedRun:
    """Return a run and the one right behind it as one."""
    return run._replace(
        end=following.end,
        count=run.count + following.count,
        payload_bytes=run.payload_bytes + following.payload_bytes,
        first_ms=min(run.first_ms, following.first_ms),
    )
