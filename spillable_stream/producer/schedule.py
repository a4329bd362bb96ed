"""Schedules the I/O threads: which batch a thread commits next, and which targets must wait.

Targets with batches take turns, one batch each. A full target occupies no thread: its first batch is retried at
growing intervals, and its other batches wait behind it. A target whose last attempt failed gets one thread at a time.
Failing and slow targets together never occupy the last free thread, which is reserved for the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from spillable_stream.engine.port import NoRoomYetError
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.destination import Destination

__all__ = ["Lane", "Schedule", "Turn"]

SLOW_SECONDS = 1.0
FIRST_LOOK_SECONDS = 0.002
LONGEST_LOOK_SECONDS = 0.1
_HELD_SECONDS = 1.0  # after a failure or a slow try, a lane is kept from the last thread for at least this long
_TRIES_PART = 10  # tries that find no room may take 1/10 of a thread's time


@dataclass(slots=True)
class _Waiting:
    """A batch that waits for room, ahead of all others in its lane.

    Args:
        batch: the batch.
        began: when its attempt began, in seconds since 1970.
        since: the same, in the clock's monotonic seconds.
        may_be_over: tells whether a try might find room.
        due: when a thread tries next, in the clock's monotonic seconds; None once that is due.
        interval_seconds: the interval between tries.
    """

    batch: ProducerBatch
    began: float
    since: float
    may_be_over: Callable[[], bool]
    due: float | None
    interval_seconds: float = FIRST_LOOK_SECONDS


class Lane:
    """One target's batches, and its condition. Times are in the clock's monotonic seconds.

    Args:
        destination: the source of new batches; None for the dead-letter channel, which has none.

    Attributes:
        destination: the source of new batches, or None.
        again: batches to retry, which go before new ones.
        runs: the batches that are being tried, and when each try began.
        queued: whether a thread will serve the lane.
        tried: whether an attempt has ended here.
        failed: whether the last attempt that ended failed.
        slow: whether it was slow.
        waiting: the batch that waits for room.
        full_since: since when the target has been full and stored nothing; None if it is not full.
        last_thread_at: when the lane may use the last free thread even though it fails or is slow, if it has no other.
    """

    failed: bool
    queued: bool
    slow: bool
    tried: bool
    __slots__ = (
        "again",
        "destination",
        "failed",
        "full_since",
        "last_thread_at",
        "queued",
        "runs",
        "slow",
        "tried",
        "waiting",
    )

    def __init__(self, destination: Destination | None) -> None:
        self.destination: Destination | None = destination
        self.again: deque[ProducerBatch] = deque()
        self.runs: dict[ProducerBatch, float] = {}
        self.queued = self.tried = self.failed = self.slow = False
        self.waiting: _Waiting | None = None
        self.full_since: float | None = None
        self.last_thread_at: float = 0.0

    def has_work(self) -> bool:
        """Tell whether there may be a batch to try now."""
        if self.waiting is not None:
            return self.waiting.due is None and self.waiting.batch not in self.runs
        return self.can_retry() or (self.destination is not None and bool(self.destination.ready))

    def can_retry(self) -> bool:
        """Tell whether there is a batch to retry whose previous turn has ended."""
        return bool(self.again) and self.again[0] not in self.runs

    def hinders(self, now: float) -> bool:
        """Tell whether the target fails or is slow, including the tries under way."""
        return self.failed or self.slow or now - next(iter(self.runs.values()), now) > SLOW_SECONDS


@dataclass(frozen=True, slots=True)
class Turn:
    """A thread's next task: to try a batch.

    Args:
        lane: the batch's lane.
        batch: the batch.
        began: when the attempt began that this try continues, in seconds since 1970; None for a new attempt.
        waited_seconds: how long the batch has waited for room since then.
        may_be_over: tells whether the try might find room; None to try in any case.
    """

    lane: Lane
    batch: ProducerBatch
    began: float | None
    waited_seconds: float
    may_be_over: Callable[[], bool] | None

    def no_room_yet(self) -> NoRoomYetError | None:
        """Return an error if a try is known to find no room; None to try. The mutex is not needed."""
        if self.may_be_over is None:
            return None
        try:
            return None if self.may_be_over() else NoRoomYetError("nothing has changed", self.may_be_over)
        except Exception:
            return None  # the try will report it


class Schedule:
    """Gives I/O threads their turns. Every call needs the accumulator's mutex.

    Only `serve` is called by threads that receive interrupts. If an interrupt ends it, the lane's next turn does the
    rest.

    Args:
        clock: the time.
        threads: the number of I/O threads.
        destinations: all destinations.
        next_of: returns a destination's next new batch, sealed, or None.
        queue: queues a lane for a thread to `begin`.
        expect: called with the time at which `wake_due` must be called, in the clock's monotonic seconds.
        is_closing: tells whether the producer is closing. The batches of a full lane then share a single wait for room,
            which starts with the close.
    """

    def __init__(
        self,
        clock: Clock,
        threads: int,
        destinations: Sequence[Destination],
        next_of: Callable[[Destination], ProducerBatch | None],
        queue: Callable[[Lane], None],
        expect: Callable[[float], None],
        is_closing: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._most_hindering = max(1, threads - 1)
        self._lanes = {destination: Lane(destination) for destination in destinations}
        self._dead = Lane(None)
        self._alone = len(self._lanes) == 1
        self._next_of = next_of
        self._queue = queue
        self._expect = expect
        self._is_closing = is_closing
        self._closing_since: float | None = None
        self._rests: dict[ProducerBatch, ProducerBatch] = {}  # of those that were divided: what is tried after each
        self._busy: dict[Lane, None] = {}
        self._held: deque[Lane] = deque()  # those that may not use the last thread
        self._looks: list[tuple[float, int, Lane]] = []  # a heap: when a thread tries each again
        self._number = count()

    # ── new work ────────────────────────────────────────────────────────────────────────────

    def serve(self, destination: Destination) -> None:
        """Schedule a destination's next new batch."""
        self._offer(self._lanes[destination])

    def submit(self, batch: ProducerBatch) -> None:
        """Schedule a batch for a retry, or for its first attempt as a dead letter."""
        lane = self._lanes[batch.destination]
        if batch.dead is not None:
            lane, self._alone = self._dead, False
        lane.again.append(batch)
        self._offer(lane)

    def submit_divided(self, batch: ProducerBatch, rest: ProducerBatch) -> None:
        """Schedule a batch that was divided, and for when it has ended the rest of its sends."""
        if batch in self._rests:
            self._rests[rest] = self._rests[batch]
        self._rests[batch] = rest
        self.submit(batch)

    def _offer(self, lane: Lane) -> None:
        if not lane.queued and lane.has_work():
            self._queue(lane)  # first: an interrupt in between only queues it twice, which is harmless
            lane.queued = True

    def wake_due(self, now: float) -> float | None:
        """Schedule the tries for room that are due.

        Args:
            now: the time, in the clock's monotonic seconds.

        Returns:
            When the next one is due; None if nothing waits.
        """
        while self._looks and self._looks[0][0] <= now:
            due, _, lane = heapq.heappop(self._looks)
            if lane.waiting is not None and lane.waiting.due == due:
                lane.waiting.due = None
                self._offer(lane)
            elif lane in self._held and now >= lane.last_thread_at:
                self._held.remove(lane)
                self._queue(lane)
        return self._looks[0][0] if self._looks else None

    def running(self) -> set[ProducerBatch]:
        """Return the batches that are being tried."""
        return {batch for lane in self._busy for batch in lane.runs}

    def put_back(self) -> list[ProducerBatch]:
        """Return the batches to try again now. The turns in which they were put back may not have ended."""
        return [batch for lane in (*self._lanes.values(), self._dead) for batch in lane.again]

    def withdraw(self) -> None:
        """Forget the batches that are not being tried now, and those of the destinations."""
        for lane in (*self._lanes.values(), self._dead):
            if lane.waiting is not None and lane.waiting.batch not in lane.runs:
                lane.waiting = None
            lane.again.clear()
        self._rests.clear()  # though the batches before them are being tried: they may end before these are told
        for destination in self._lanes:
            destination.withdraw()

    # ── a thread's turn ─────────────────────────────────────────────────────────────────────

    def begin(self, lane: Lane) -> Turn | None:
        """Start a thread's turn in a lane, and return it; None if the lane has nothing to do, or must wait."""
        lane.queued = False
        now = self._clock.monotonic()
        if not lane.has_work():
            self._release(now)
            return None
        if self._must_wait(lane, now):
            return None
        waiting = lane.waiting
        if waiting is not None:
            batch: ProducerBatch | None = waiting.batch
        else:
            batch = self._take(lane)
        if batch is None:
            self._release(now)
            return None
        lane.runs[batch] = now
        self._busy[lane] = None
        if lane.destination is None or not lane.destination.in_order:
            self._offer(lane)
        began = None if waiting is None else waiting.began
        look = None if waiting is None or self._is_closing() else waiting.may_be_over
        return Turn(lane, batch, began, self._waited_seconds(lane, now), look)

    def _take(self, lane: Lane) -> ProducerBatch | None:
        while lane.can_retry():
            batch = lane.again.popleft()
            if batch.outcome is None:  # a batch with an outcome was given up
                return batch
        return None if lane.destination is None else self._next_of(lane.destination)

    def _must_wait(self, lane: Lane, now: float) -> bool:
        """Tell whether a lane may not use this thread. It is queued again once it may use one.

        The last free thread is reserved for healthy lanes. A lane that fails or is slow may use it about a tenth of the
        time, so that it is still retried while another lane is stuck.
        """
        if self._alone:
            return False
        if lane.runs and (lane.failed or not lane.tried):
            return True
        if not lane.hinders(now) or self._free_for_hindering(now) > 0:
            return False
        if not lane.runs:
            if now >= lane.last_thread_at:
                return False
            heapq.heappush(self._looks, (lane.last_thread_at, next(self._number), lane))
            self._expect(lane.last_thread_at)
        self._held.append(lane)
        lane.queued = True
        return True

    def _release(self, now: float) -> None:
        """Queue held lanes again, as far as there are threads for them."""
        if self._held:
            for _ in range(min(len(self._held), self._free_for_hindering(now))):
                self._queue(self._held.popleft())

    def _free_for_hindering(self, now: float) -> int:
        """Return how many more threads lanes that fail or are slow may use."""
        return self._most_hindering - sum(len(lane.runs) for lane in self._busy if lane.hinders(now))

    def _waited_seconds(self, lane: Lane, now: float) -> float:
        """Return how long a lane's next batch has waited for room, in seconds.

        While the producer closes, the wait counts for all of the lane's batches, from when the target became full or
        the close began.
        """
        waited = now - lane.waiting.since if lane.waiting is not None else 0.0
        if not self._is_closing():
            return waited
        self._closing_since = now if self._closing_since is None else self._closing_since
        return waited if lane.full_since is None else max(waited, now - max(lane.full_since, self._closing_since))

    def end(self, turn: Turn, error: BaseException | None) -> None:
        """Record how a turn ended, and free its thread for others.

        Args:
            turn: the turn that `begin` returned.
            error: the error that the try raised; None for a success. After a `NoRoomYetError` the batch waits for room.
        """
        lane, now = turn.lane, self._clock.monotonic()
        took_seconds = now - lane.runs.pop(turn.batch)
        if not lane.runs:
            del self._busy[lane]
        if isinstance(error, NoRoomYetError):
            self._let_wait(turn, error, took_seconds, now)
        else:
            lane.tried, lane.failed, lane.slow = True, error is not None, took_seconds > SLOW_SECONDS
            if error is None:
                lane.full_since = None
            if lane.waiting is not None and lane.waiting.batch is turn.batch:
                lane.waiting = None
            lane.last_thread_at = now + max(_HELD_SECONDS, _TRIES_PART * took_seconds)
        if turn.batch.outcome is not None and (rest := self._rests.pop(turn.batch, None)) is not None:
            self.submit(rest)
        self._offer(lane)
        self._release(now)

    def _let_wait(self, turn: Turn, error: NoRoomYetError, took_seconds: float, now: float) -> None:
        lane, batch, waiting = turn.lane, turn.batch, turn.lane.waiting
        if waiting is None:
            waiting = lane.waiting = _Waiting(batch, self._clock.time(), now, error.may_be_over, None)
            lane.full_since = now if lane.full_since is None else lane.full_since
        elif waiting.batch is not batch:  # both were tried at once
            lane.again.appendleft(batch)
            return
        else:
            waiting.may_be_over = error.may_be_over
            waiting.interval_seconds = min(2 * waiting.interval_seconds, LONGEST_LOOK_SECONDS)
        waiting.due = now + max(waiting.interval_seconds, _TRIES_PART * took_seconds)
        heapq.heappush(self._looks, (waiting.due, next(self._number), lane))
        self._expect(waiting.due)
