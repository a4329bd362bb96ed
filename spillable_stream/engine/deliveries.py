"""Deliveries: delayed events that are due enter the order, by a commit of whoever comes next."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.engine.delayed_puts import Delayed, Staging
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.requests import Request
from spillable_stream.engine.waiting_events import WaitingEvents
from spillable_stream.errors import CorruptionError, DataLossError, DiskSpaceError, StorageError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.commit_record import DeliveredRun
from spillable_stream.format.frame import Frame, total_size
from spillable_stream.log.delayed_frames import SideFiles
from spillable_stream.log.delayed_index import DelayedIndex
from spillable_stream.log_records import fields, log_of
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.delays import DelayedFile, Place

__all__ = ["Deliveries", "wall_clock_ms"]

_log = log_of(__name__)

_MOST_EVENTS = 4096  # of one commit
_MOST_EVENTS_FAR = 32_768  # of one that is a request or two
_MOST_BYTES = 4 << 20  # of one commit, in memory; a frame comes on top
_MOST_BYTES_FAR = 16 << 20
_MOST_INDEXED = 1 << 20  # events of files that are read for one commit, at 24 bytes each
_COMMIT_BYTES = 1024
_AHEAD = 16  # files
_RUN_BYTES = 64
_AGAIN_SECONDS = 1.0  # after a failure
_BUSY_SECONDS = 0.05  # while another thread delivers
_SPREAD_PART = 0.2  # of the time between two looks
_WAIT_ON = "delayed events of %s are late, and tried again: %s"


def wall_clock_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Deliveries:
    """Moves delayed events that are due from the side files into the log. Thread-safe.

    On a disk all of it is done under the commit lock. Nothing keeps others from a log far away: what is due is read
    first, and put if it still waits at the log's end.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.
        make_room: frees disk space, or leaves a full disk for another one.
        files: the side files.
        delay: returns what a put needs to delay events. Where side files are objects, they are written then.
        stage: begins to write the delayed events of a large put.

    Attributes:
        files: the side files.
        delay: as given.
        stage: as given.
        clock_ms: the clock, in milliseconds since 1970.
    """

    def __init__(
        self,
        log: Log,
        follower: Follower,
        appender: Appender,
        make_room: Callable[[], None],
        files: SideFiles,
        delay: Callable[[list[DelayedChunk]], Delayed],
        stage: Callable[[], Staging],
    ) -> None:
        self.files: SideFiles = files
        self.delay: Callable[[list[DelayedChunk]], Delayed] = delay
        self.stage: Callable[[], Staging] = stage
        self.clock_ms: Callable[[], int] = wall_clock_ms
        self._log = log
        self._follower = follower
        self._appender = appender
        self._make_room = make_room
        self._mutex = threading.Lock()  # instead of the commit lock, where that keeps nobody else away
        self._indexes: dict[tuple[int, str], DelayedIndex] = {}  # by number and name
        self._set_aside: dict[int, float] = {}  # files that this handle does not try before a monotonic time
        self._came_damaged: set[int] = set()  # files that are read once more before they count as damaged
        self._again_at = float("-inf")

    def deliver(self) -> bool:
        """Deliver some events if any are due, and tell whether it did. What fails is logged, and tried again later.

        The caller holds no lock of the channel.
        """
        now_ms, log = self.clock_ms(), self._log
        if log.is_view or not self._follower.state.delays.are_due(now_ms) or time.monotonic() < self._again_at:
            return False
        if self._follower.snapshot.is_mine() or not self._due(self._follower.state, now_ms):
            return False
        try:
            with log.unasked():
                if log.is_far:
                    with self._alone() as is_alone:  # nobody waits for the requests of another thread's delivery
                        return is_alone and self._deliver(now_ms)
                with self._appender.committing():
                    return self._deliver(now_ms)
        except Exception as e:  # whatever it is done after has succeeded: it fails for nothing
            if not log.closed:
                self._again_at = time.monotonic() + _AGAIN_SECONDS
                _log.warning(_WAIT_ON, log.path, e, extra=fields(log.path))
                if isinstance(e, DiskSpaceError):  # maybe for good: what waits holds space until it is delivered
                    self._make_room()
        return False

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keep the other threads of this handle from delivering; yields whether none of them does already."""
        had = list[bool]()
        try:
            had.extend(map(self._mutex.acquire, (False,)))  # one call: no interrupt comes in between
            yield had[0]
        finally:
            if had and had[0]:
                self._mutex.release()

    def wait_for(self, ready: Callable[[ChannelState], bool], timeout_seconds: float) -> bool:
        """Wait as `Follower.wait_for` does, and deliver meanwhile what gets due."""
        follower, deadline = self._follower, time.monotonic() + timeout_seconds
        while True:
            while self.deliver() and not ready(follower.state):
                pass
            next_ms, is_ready = follower.state.delays.next_ms, False

            def is_news(state: ChannelState) -> bool:
                nonlocal is_ready
                is_ready = ready(state)
                return is_ready or state.delays.next_ms != next_ms  # noqa: B023

            left_seconds = max(0.0, deadline - time.monotonic())
            due_seconds = self._due_seconds()
            until_seconds = left_seconds if due_seconds is None else min(left_seconds, due_seconds)
            if follower.wait_for(is_news, until_seconds) and is_ready:
                return True
            if time.monotonic() >= deadline:
                return False

    def _due_seconds(self) -> float | None:
        """Return how long to wait for what is due next; None if nothing is, or this handle can't deliver it."""
        now, now_ms, files = time.monotonic(), self.clock_ms(), list(self._follower.state.delays.files.values())
        waits = [max((f.next_ms - now_ms) / 1000, self._set_aside.get(f.number, 0.0) - now) for f in files]
        if self._log.is_view or (due_seconds := min(waits, default=inf)) == inf:
            return None
        # All who wait for a log far away would race for its next slot.
        spread_seconds = random.uniform(0, self._log.poll_seconds[1] * _SPREAD_PART) if self._log.is_far else 0.0
        busy_seconds = _BUSY_SECONDS if self._mutex.locked() else 0.0
        return max(busy_seconds, due_seconds + spread_seconds, self._again_at - now)

    def _due(self, state: ChannelState, now_ms: int) -> list[DelayedFile]:
        """Return the files that have events to deliver."""
        now, files = time.monotonic(), list(state.delays.files.values())
        return [f for f in files if f.next_ms <= now_ms and self._set_aside.get(f.number, now) <= now]

    # ── nobody else delivers ─────────────────────────────────────────────────────────────────────────

    def _deliver(self, now_ms: int) -> bool:
        with self._follower.as_known as state:
            waiting, compression = dict(state.delays.files), state.options.compression
            due = self._due(state, now_ms)
        events = self._next(waiting, due, now_ms)
        if not events:
            return self._follower.state.delays.files != waiting  # far away others may have changed what waits
        found = self._read(events, waiting, compression)
        if found is None:
            return True  # a file less
        frames, count = found
        runs = self._runs(events[:count], waiting)
        request = _Deliver(frames, runs, [waiting[run.file] for run in runs])
        if self._log.is_far:
            self._appender.commit_alone(request)
        else:
            self._appender.append_alone(request)
        for file in request.files:
            if file.number not in self._follower.state.delays.files:
                self.files.remove(file)
        return True

    def _next(self, waiting: dict[int, DelayedFile], due: list[DelayedFile], now_ms: int) -> list[_Due]:
        """Return the next events that are due, in the order of their due times; due at once, in that of their puts.

        It reads the files in which one of them may be. Where these have too many events, it reads the first ones alone.
        """
        found: list[_Due] = []
        indexed, is_far = 0, self._log.is_far
        most = _MOST_EVENTS_FAR if is_far else _MOST_EVENTS
        due = sorted(due, key=lambda f: (f.next_ms, f.number))
        for at, file in enumerate(due):
            is_behind = len(found) == most and found[-1].place[0] < file.next_ms
            if is_behind or (found and indexed + file.events > _MOST_INDEXED):
                break
            if not at % _AHEAD:
                self.files.expect(due[at : at + _AHEAD], now_ms)
            try:
                index = self._index(file)
                places = index.due(now_ms, most)
                if not places:
                    raise self.files.damaged(file, file.end)  # it has fewer events than the log says
            except (CorruptionError, StorageError) as e:
                self._leave(file, e)
                continue
            indexed += file.events
            if is_far:
                found += [_Due(place, file.number, index.put(place) or file.number) for place in places]
            else:
                found += [_Due(place, file.number, -file.width_ms) for place in places]
            found.sort(key=_Due.key)
            del found[most:]
        self._forget_all_but(waiting)
        return found

    def _forget_all_but(self, waiting: dict[int, DelayedFile]) -> None:
        self._indexes = {key: index for key, index in self._indexes.items() if key[0] in waiting}
        self._set_aside = {number: at for number, at in self._set_aside.items() if number in waiting}
        self._came_damaged &= waiting.keys()

    def _index(self, file: DelayedFile) -> DelayedIndex:
        key = file.number, file.name
        index = self._indexes.pop(key, None)
        if index is None:
            index = DelayedIndex(self.files)
        index.follow(file)
        self._indexes[key] = index  # not before: an interrupt may leave it with half of what it read
        return index

    def _leave(self, file: DelayedFile, cause: CorruptionError | StorageError) -> None:
        """Leave a file alone that can't be read: it holds back no commit, and no other file.

        One that is damaged is left for good, one that the storage refused for a moment; so is an object that came
        damaged once, which may have been so on its way. A log far away may tell by now that nothing waits in it any
        more.
        """
        number = file.number
        self._indexes.pop((number, file.name), None)
        if self._log.is_far and number not in self._follower.follow().delays.files:
            return
        is_final = isinstance(cause, DataLossError) or not self._log.is_far or number in self._came_damaged
        if isinstance(cause, CorruptionError) and is_final:
            self._set_aside[number] = inf
            _log.error("delayed events can't be delivered: %s", cause, extra=fields(self._log.path))
        else:
            if isinstance(cause, CorruptionError):
                self._came_damaged.add(number)
            self._set_aside[number] = time.monotonic() + _AGAIN_SECONDS
            _log.warning(_WAIT_ON, self._log.path, cause, extra=fields(self._log.path))

    def _read(
        self, events: list[_Due], waiting: dict[int, DelayedFile], compression: str
    ) -> tuple[list[Frame], int] | None:
        """Return the frames of the first of these events, and how many they are: all that one commit holds in memory.

        None if a file can't be read, which is left alone.
        """
        found, order = WaitingEvents(self.files, self._follower.schemas()), [(due.place, due.file) for due in events]
        try:
            count = found.read_first(order, waiting, _MOST_BYTES_FAR if self._log.is_far else _MOST_BYTES)
        except (CorruptionError, StorageError) as e:
            assert found.reading is not None
            self._leave(found.reading, e)
            return None
        frames = [
            frame
            for kind, batch in found.in_order(order[:count])
            for frame in encode_batch(
                batch, kind.schema_id, compression, kind.ttl_us, frame_bytes=self._follower.frame_bytes
            )
        ]
        return frames, count

    def _runs(self, events: list[_Due], waiting: dict[int, DelayedFile]) -> list[DeliveredRun]:
        """Return what the COMMIT says of the files whose events these are."""
        counts: dict[int, int] = {}
        lasts: dict[int, Place] = {}
        for place, number, _ in events:
            counts[number] = counts.get(number, 0) + 1
            lasts[number] = place
        return [
            DeliveredRun(number, *lasts[number], count, self._indexes[number, waiting[number].name].next_ms(count))
            for number, count in counts.items()
        ]


class _Due(NamedTuple):
    """An event that is due.

    Args:
        place: where it is in the order of its file.
        file: the file's number.
        put: what sorts events that are due at once in the order of their puts. On a disk the width of the file's
            stretch of time, less than 0: what was put first had longer to wait. In a store the number of the put.
    """

    place: Place
    file: int
    put: int

    def key(self) -> tuple[int, int, int, Place]:
        """Return what sorts events."""
        return self.place[0], self.put, self.file, self.place


@dataclass(slots=True)
class _Deliver(Request):
    """Events of side files enter the order, and wait there no more: one commit.

    Args:
        frames: their PUT frames.
        delivered: which they are.
        files: the side files, as the state had them that they were read by.
    """

    frames: list[Frame]
    delivered: list[DeliveredRun]
    files: Sequence[DelayedFile]

    def may_repeat(self) -> bool:
        """Tell that it may: the plan checks that they still wait."""
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return total_size(self.frames) + _COMMIT_BYTES + _RUN_BYTES * len(self.delivered)

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Add the events, under the next IDs, unless another handle has delivered or moved some meanwhile."""
        waiting = plan.state.delays.files
        if any([waiting.get(file.number) != file for file in self.files]):
            return CommitResult()
        tx, first = plan.new_transaction(), plan.next_id
        plan.is_extended = True
        for frame in self.frames:
            plan.add(frame, tx, plan.next_id)
            plan.next_id += frame.count
        plan.commit("put", plan.next_id - first, tx, first, delivered=self.delivered)
        return CommitResult(tx, first, plan.next_id - 1)
