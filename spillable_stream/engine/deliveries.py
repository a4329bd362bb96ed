"""Deliveries: delayed events that are due enter the order, by a commit of whoever comes next."""

from __future__ import annotations

import contextlib
import logging
import time
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import groupby, takewhile
from math import inf
from threading import get_ident
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local_log import LocalLog
from spillable_stream.engine.requests import Request
from spillable_stream.errors import CorruptionError, SpillableError, StorageError
from spillable_stream.format.batch import decode_batch, encode_batch
from spillable_stream.format.commit_record import DeliveredRun
from spillable_stream.format.frame import Frame, FrameHeader, message_of, total_size
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.delayed_index import DelayedIndex
from spillable_stream.log_records import fields
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.delays import DelayedFile, Place

__all__ = ["Deliveries", "wall_clock_ms"]

_log = logging.getLogger(__name__)

_MOST_EVENTS = 4096  # of one commit
_MOST_BYTES = 4 << 20  # of one commit, in memory; what a frame has comes on top
_MOST_INDEXED = 1 << 20  # events of files that are read for one commit, at 24 bytes each
_COMMIT_BYTES = 1024
_RUN_BYTES = 64
_AGAIN_SECONDS = 1.0  # after a failure
_WAIT_ON = "delayed events of %s are late, and tried again: %s"


def wall_clock_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Deliveries:
    """Moves delayed events that are due from the side files into the log. Thread-safe.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.

    Attributes:
        files: the side files.
        clock_ms: the clock, in milliseconds since 1970.
    """

    def __init__(self, log: LocalLog, follower: Follower, appender: Appender) -> None:
        self.files: DelayedFiles = DelayedFiles(log.fs, log.layout)
        self.clock_ms: Callable[[], int] = wall_clock_ms
        self._log = log
        self._follower = follower
        self._appender = appender
        self._indexes: dict[int, DelayedIndex] = {}  # guarded by the commit lock
        self._set_aside: dict[int, float] = {}  # files that this handle does not try before a monotonic time
        self._again_at = float("-inf")

    def deliver(self) -> bool:
        """Deliver some events if any are due, and tell whether it did. What fails is logged, and tried again later.

        The caller holds no lock of the channel.
        """
        now_ms, log = self.clock_ms(), self._log
        if log.is_view or not self._follower.state.delays.are_due(now_ms) or time.monotonic() < self._again_at:
            return False
        if self._follower.snapshot.thread == get_ident() or not self._due(self._follower.state, now_ms):
            return False
        try:
            with self._appender.committing():
                return self._deliver(now_ms)
        except SpillableError as e:  # whatever it is done after has succeeded
            if not log.closed:
                self._again_at = time.monotonic() + _AGAIN_SECONDS
                _log.warning(_WAIT_ON, log.path, e, extra=fields(log.path))
            return False

    def wait_for(self, ready: Callable[[ChannelState], bool], timeout_seconds: float) -> bool:
        """Wait as `Follower.wait_for` does, and deliver meanwhile what gets due."""
        follower, deadline = self._follower, time.monotonic() + timeout_seconds
        while True:
            while self.deliver() and not ready(follower.state):
                pass
            next_ms = follower.state.delays.next_ms
            left_seconds = max(0.0, deadline - time.monotonic())
            due_seconds = self._due_seconds()
            until_seconds = left_seconds if due_seconds is None else min(left_seconds, due_seconds)
            news = follower.wait_for(lambda s: ready(s) or s.delays.next_ms != next_ms, until_seconds)  # noqa: B023
            if news and ready(follower.state):
                return True
            if time.monotonic() >= deadline:
                return False

    def _due_seconds(self) -> float | None:
        """Return how long to wait for what is due next; None if nothing is, or this handle can't deliver it."""
        now, now_ms, files = time.monotonic(), self.clock_ms(), list(self._follower.state.delays.files.values())
        waits = [max((f.next_ms - now_ms) / 1000, self._set_aside.get(f.number, 0.0) - now) for f in files]
        if self._log.is_view or (due_seconds := min(waits, default=inf)) == inf:
            return None
        return max(0.0, due_seconds, self._again_at - now)

    def _due(self, state: ChannelState, now_ms: int) -> list[DelayedFile]:
        """Return the files that have events to deliver."""
        now, files = time.monotonic(), list(state.delays.files.values())
        return [f for f in files if f.next_ms <= now_ms and self._set_aside.get(f.number, now) <= now]

    # ── the commit lock is held ─────────────────────────────────────────────────────────────────

    def _deliver(self, now_ms: int) -> bool:
        state = self._follower.state
        events = self._next(state, now_ms)
        if not events:
            return False
        found = self._read(events, state)
        if found is None:
            return True  # a file less
        frames, count = found
        request = _Deliver(frames, self._runs(events[:count]))
        self._appender.append_alone(request)
        for run in request.delivered:
            if run.file not in self._follower.state.delays.files:
                self.files.remove(run.file)
        return True

    def _next(self, state: ChannelState, now_ms: int) -> list[_Due]:
        """Return the next events that are due, in the order of their due times; due at once, in that of their puts.

        It reads the files in which one of them may be. Where these have too many events, it reads the first ones alone.
        """
        found: list[_Due] = []
        indexed = 0
        for file in sorted(self._due(state, now_ms), key=lambda f: (f.next_ms, f.number)):
            is_behind = len(found) == _MOST_EVENTS and found[-1].place[0] < file.next_ms
            if is_behind or (found and indexed + file.events > _MOST_INDEXED):
                break
            try:
                places = self._index(file).due(now_ms, _MOST_EVENTS)
                if not places:
                    raise self.files.damaged(file.number, file.end)  # it has fewer events than the log says
            except (CorruptionError, StorageError) as e:
                self._leave(file.number, e)
                continue
            indexed += file.events
            found += [_Due(place, file.number, file.width_ms) for place in places]
            found.sort(key=_Due.key)
            del found[_MOST_EVENTS:]
        self._indexes = {number: index for number, index in self._indexes.items() if number in state.delays.files}
        return found

    def _index(self, file: DelayedFile) -> DelayedIndex:
        index = self._indexes.setdefault(file.number, DelayedIndex(self.files))
        index.follow(file)
        return index

    def _leave(self, number: int, cause: CorruptionError | StorageError) -> None:
        """Leave a file alone that can't be read: it holds back no commit, and no other file.

        One that is damaged is left for good, one that the file system refused for a moment.
        """
        self._indexes.pop(number, None)
        if isinstance(cause, CorruptionError):
            self._set_aside[number] = inf
            _log.error("delayed events can't be delivered: %s", cause, extra=fields(self._log.path))
        else:
            self._set_aside[number] = time.monotonic() + _AGAIN_SECONDS
            _log.warning(_WAIT_ON, self._log.path, cause, extra=fields(self._log.path))

    def _read(self, events: list[_Due], state: ChannelState) -> tuple[list[Frame], int] | None:
        """Return the frames of the first of these events, and how many they are: all that fit into one commit's memory.

        None if a file can't be read, which is left alone.
        """
        rows: dict[_Source, list[int]] = {}  # in the order of the events, so what is read is what comes first
        for (_, offset, row), number, _ in events:
            rows.setdefault(_Source(number, offset), []).append(row)
        offsets: dict[int, list[int]] = {}
        for source in rows:
            offsets.setdefault(source.file, []).append(source.offset)
        batches: dict[_Kind, list[pa.RecordBatch]] = {}
        where: dict[tuple[_Source, int], tuple[_Kind, int]] = {}  # the kind of each event, and its row among those
        counts: Counter[_Kind] = Counter()
        schemas, left_bytes = self._follower.schemas(), _MOST_BYTES
        with contextlib.ExitStack() as stack:
            readers: dict[int, Generator[tuple[FrameHeader, pa.Buffer]]] = {}
            for source, wanted in rows.items():
                if left_bytes <= 0:
                    break
                try:
                    if source.file not in readers:
                        reader = self.files.puts(source.file, offsets[source.file])
                        readers[source.file] = stack.enter_context(contextlib.closing(reader))
                    header, payload = next(readers[source.file])
                    kind = _Kind(header.schema_id, header.ttl_us)
                    if kind.schema_id >= len(schemas):
                        raise self.files.damaged(*source)
                    batch = _only(decode_batch(message_of(header, payload), schemas[kind.schema_id]), wanted)
                except (CorruptionError, StorageError) as e:
                    self._leave(source.file, e)
                    return None
                left_bytes -= batch.nbytes
                batches.setdefault(kind, []).append(batch)
                where.update({(source, row): (kind, counts[kind] + i) for i, row in enumerate(wanted)})
                counts[kind] += len(wanted)
        found = (where.get((_Source(number, offset), row)) for (_, offset, row), number, _ in events)
        order = [event for event in takewhile(bool, found) if event]
        tables = {kind: pa.Table.from_batches(parts) for kind, parts in batches.items()}
        return _encoded(tables, order, state), len(order)

    def _runs(self, events: list[_Due]) -> list[DeliveredRun]:
        """Return what the COMMIT says of the files whose events these are."""
        counts: dict[int, int] = {}
        lasts: dict[int, Place] = {}
        for place, number, _ in events:
            counts[number] = counts.get(number, 0) + 1
            lasts[number] = place
        return [
            DeliveredRun(number, *lasts[number], count, self._indexes[number].next_ms(count))
            for number, count in counts.items()
        ]


class _Due(NamedTuple):
    """An event that is due.

    Args:
        place: where it is in the order of its file.
        file: the file's number.
        width_ms: the width of the file's stretch of time.
    """

    place: Place
    file: int
    width_ms: int

    def key(self) -> tuple[int, int, int, Place]:
        """Return what sorts events: of those due at once, the one put first had longer to wait, in a wider stretch."""
        return self.place[0], -self.width_ms, self.file, self.place


class _Source(NamedTuple):
    """A frame: its file's number, and where it starts there."""

    file: int
    offset: int


class _Kind(NamedTuple):
    """What all events of one frame have in common.

    Args:
        schema_id: the number of their schema.
        ttl_us: their ttl, in microseconds; 0 for none.
    """

    schema_id: int
    ttl_us: int


def _only(batch: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    """Return some rows of a batch, in a memory of their own: it does not hold the rest."""
    if len(rows) == batch.num_rows:
        return batch
    return batch.take(pa.array(rows, pa.int64()))


def _encoded(tables: Mapping[_Kind, pa.Table], order: list[tuple[_Kind, int]], state: ChannelState) -> list[Frame]:
    """Return the PUT frames of events in an order.

    Args:
        tables: the events, by kind.
        order: of each event its kind, and its row in that table.
        state: says how they are compressed.
    """
    frames: list[Frame] = []
    for kind, run in groupby(order, key=lambda o: o[0]):
        rows = array("q", [row for _, row in run])
        indices = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
        for batch in tables[kind].take(indices).combine_chunks().to_batches():
            frames += encode_batch(batch, kind.schema_id, state.options.compression, kind.ttl_us)
    return frames


@dataclass(slots=True)
class _Deliver(Request):
    """Events of side files enter the order, and wait there no more: one commit.

    Args:
        frames: their PUT frames.
        delivered: which they are.
    """

    frames: list[Frame]
    delivered: list[DeliveredRun]

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return total_size(self.frames) + _COMMIT_BYTES + _RUN_BYTES * len(self.delivered)

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Add the events, under the next IDs."""
        tx, first = plan.new_transaction(), plan.next_id
        plan.is_extended = True
        for frame in self.frames:
            plan.add(frame, tx, plan.next_id)
            plan.next_id += frame.count
        plan.commit("put", plan.next_id - first, tx, first, delivered=self.delivered)
        return CommitResult(tx, first, plan.next_id - 1)
