"""Deliveries: delayed events that are due enter the order, by a commit of whoever comes next."""

from __future__ import annotations

import logging
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
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
from spillable_stream.format.frame import Frame, message_of, total_size
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.delayed_index import DelayedIndex
from spillable_stream.log_records import fields
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.delays import DelayedFile, Place

__all__ = ["Deliveries", "wall_clock_ms"]

_log = logging.getLogger(__name__)

_MOST_EVENTS = 4096  # of one commit
_MOST_BYTES = 4 << 20
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
        places = self._next(state, now_ms)
        if not places:
            return False
        frames = self._read(places, state)
        if frames is None:
            return True  # a file less
        request = _Deliver(frames, self._runs(places))
        self._appender.append_alone(request)
        for run in request.delivered:
            if run.file not in self._follower.state.delays.files:
                self.files.remove(run.file)
        return True

    def _next(self, state: ChannelState, now_ms: int) -> list[tuple[Place, int]]:
        """Return the places of events that are due, each with its file, in their order.

        If more are due than one commit delivers, these are events of few files: what is read is read once.
        """
        places: list[tuple[Place, int]] = []
        left_bytes = _MOST_BYTES
        for file in sorted(self._due(state, now_ms), key=lambda f: (f.next_ms, f.number)):
            limit = min(_MOST_EVENTS - len(places), 1 + left_bytes * file.events // max(1, file.payload_bytes))
            try:
                found = self._index(file).due(now_ms, limit)
                if not found:
                    raise self.files.damaged(file.number, file.end)  # it has fewer events than the log says
            except (CorruptionError, StorageError) as e:
                self._leave(file.number, e)
                continue
            places += [(place, file.number) for place in found]
            left_bytes -= len(found) * file.payload_bytes // file.events
            if len(places) >= _MOST_EVENTS or left_bytes <= 0:
                break
        self._indexes = {number: index for number, index in self._indexes.items() if number in state.delays.files}
        return sorted(places, key=lambda p: (p[0][0], p[1], p[0]))  # due at once: a full file before the next one

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

    def _read(self, places: list[tuple[Place, int]], state: ChannelState) -> list[Frame] | None:
        """Return the frames of events in this order; None if a file can't be read, which is left alone."""
        rows: dict[int, dict[int, list[int]]] = {}  # by file and frame
        for (_, offset, row), number in places:
            rows.setdefault(number, {}).setdefault(offset, []).append(row)
        batches: dict[_Kind, list[pa.RecordBatch]] = {}
        where: dict[tuple[int, int, int], tuple[_Kind, int]] = {}  # the kind of each event, and its row among those
        counts: Counter[_Kind] = Counter()
        schemas = self._follower.schemas()
        for number, by_frame in rows.items():
            try:
                for offset, (header, payload) in zip(by_frame, self.files.puts(number, list(by_frame)), strict=True):
                    kind, wanted = _Kind(header.schema_id, header.ttl_us), by_frame[offset]
                    if kind.schema_id >= len(schemas):
                        raise self.files.damaged(number, offset)
                    whole = decode_batch(message_of(header, payload), schemas[kind.schema_id])
                    batches.setdefault(kind, []).append(whole.slice(wanted[0], len(wanted)))
                    where.update({(number, offset, r): (kind, counts[kind] + i) for i, r in enumerate(wanted)})
                    counts[kind] += len(wanted)
            except (CorruptionError, StorageError) as e:
                self._leave(number, e)
                return None
        order = [where[number, offset, row] for (_, offset, row), number in places]
        return _encoded({kind: pa.Table.from_batches(found) for kind, found in batches.items()}, order, state)

    def _runs(self, places: list[tuple[Place, int]]) -> list[DeliveredRun]:
        """Return what the COMMIT says of the files whose events these are."""
        counts: dict[int, int] = {}
        lasts: dict[int, Place] = {}
        for place, number in places:
            counts[number] = counts.get(number, 0) + 1
            lasts[number] = place
        return [
            DeliveredRun(number, *lasts[number], count, self._indexes[number].next_ms(count))
            for number, count in counts.items()
        ]


class _Kind(NamedTuple):
    """What all events of one frame have in common.

    Args:
        schema_id: the number of their schema.
        ttl_us: their ttl, in microseconds; 0 for none.
    """

    schema_id: int
    ttl_us: int


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
