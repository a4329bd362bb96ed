"""A clock that a test moves, and a target that does what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from spillable_stream.engine.put_request import NoRoomYetError
from spillable_stream.errors import ChannelFullError, ProducerBusyError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.producer.clock import Clock

PATIENCE_SECONDS = 60.0  # of a test that would hang; none waits for it


class FakeClock(Clock):
    """Time that only moves when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._conditions: set[threading.Condition] = set()
        self._looked = threading.local()  # what time it was when a thread looked last

    def monotonic(self) -> float:
        now = self._looked.at = self.now
        return now

    def time(self) -> float:
        return 1_700_000_000 + self.now

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        self._conditions.add(condition)
        if timeout_seconds is not None and (timeout_seconds <= 0 or getattr(self._looked, "at", self.now) != self.now):
            return  # the time moved after the thread had looked: nobody will tell it again
        condition.wait()

    def advance(self, seconds: float) -> None:
        """Move the time, and let everybody look who waits for it."""
        self.now += seconds
        for condition in list(self._conditions):
            with condition:
                condition.notify_all()


class FakeTarget:
    """Keeps batches in memory, each once, and fails or waits when it is told to.

    Attributes:
        attempts: every call of `commit`: the number and the bodies.
        stored: what was stored: the number to the events.
        taken: the numbers that these calls took.
        closed: how often it was closed.
        answer: whether a commit's answer arrives; else it is stored and an error raised.
    """

    def __init__(self, schema: pa.Schema = EVENT_SCHEMA, max_events: int = 10_000, name: str = "fake") -> None:
        self.name = name
        self.schema = schema
        self.max_events = max_events
        self.attempts: list[tuple[int, list[Any]]] = []
        self.stored: dict[int, pa.RecordBatch] = {}
        self.closed = 0
        self.claimed: set[str] = set()
        self.taken: list[tuple[int, int]] = []
        self.answer = True
        self._next_id = 1
        self._ids: dict[int, tuple[int, int]] = {}
        self._errors: list[BaseException | None] = []
        self._always: Callable[[int], BaseException | None] = lambda sequence: None
        self._mutex = threading.Lock()
        self._gate = threading.Event()
        self._gate.set()
        self._tried = threading.Condition()

    # ── what a test says ────────────────────────────────────────────────────────────────────

    def fail(self, *errors: BaseException | None) -> None:
        """Fail the next commits with these errors; None is a success."""
        self._errors += errors

    def fail_while(self, failing: Callable[[int], BaseException | None]) -> None:
        """Ask this for every number whether and how to fail."""
        self._always = failing

    def hold(self) -> None:
        """Let commits wait until `let_go`."""
        self._gate.clear()

    def let_go(self) -> None:
        self._gate.set()

    def wait_for_attempts(self, count: int) -> None:
        """Wait until so many commits have begun."""
        with self._tried:
            assert self._tried.wait_for(lambda: len(self.attempts) >= count, PATIENCE_SECONDS), self.attempts

    @property
    def bodies(self) -> list[Any]:
        """Everything stored, in order of the numbers."""
        return [row for sequence in sorted(self.stored) for row in rows(self.stored[sequence])]

    # ── a target ────────────────────────────────────────────────────────────────────────────

    def claim(self, producer_id: str) -> None:
        if producer_id in self.claimed:
            raise ProducerBusyError(f"{producer_id} is taken")
        self.claimed.add(producer_id)

    def last_sequence(self, producer_id: str) -> int:
        return max(self.stored, default=0)

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> tuple[int, int]:
        sequence = numbers.last
        self.taken.append((numbers.first, numbers.last))
        with self._tried:
            self.attempts.append((sequence, rows(batch)))
            self._tried.notify_all()
        assert self._gate.wait(PATIENCE_SECONDS)
        with self._mutex:
            error = self._errors.pop(0) if self._errors else self._always(sequence)
            if error is not None:
                raise error
            if sequence not in self.stored:
                self.stored[sequence] = batch
                self._ids[sequence] = self._next_id, self._next_id + batch.num_rows - 1
                self._next_id += batch.num_rows
            if not self.answer:
                raise ConnectionError("the answer was lost")
            return self._ids[sequence]

    def close(self) -> None:
        self.closed += 1


def rows(batch: pa.RecordBatch) -> list[Any]:
    """Return the bodies of events, or rows."""
    found: list[Any] = batch.column("body").to_pylist() if batch.schema.equals(EVENT_SCHEMA) else batch.to_pylist()
    return found


def full(count: int = 1) -> Iterable[BaseException]:
    """Return errors that may pass."""
    return [ChannelFullError("it is full") for _ in range(count)]


class FullTarget(FakeTarget):
    """Has no room until a test says so, and leaves the waiting to the producer, as a channel does.

    Attributes:
        has_room: whether it has.
        keep_alive_seconds: how long a batch waits before it is refused.
        changed: whether to try makes sense.
        tries: how often it was tried, also while a batch waited.
    """

    def __init__(self, name: str = "full", keep_alive_seconds: float = 3.0) -> None:
        super().__init__(name=name)
        self.has_room = False
        self.keep_alive_seconds = keep_alive_seconds
        self.changed = True
        self.tries = 0

    def commit(
        self,
        batch: pa.RecordBatch,
        producer_id: str,
        numbers: tuple[int, int],
        waited_seconds: float | None = None,
    ) -> tuple[int, int]:
        assert waited_seconds is not None, "it would wait here, and hold a thread"
        self.tries += 1
        if not self.has_room:
            if waited_seconds >= self.keep_alive_seconds:
                self.attempts.append((numbers[1], rows(batch)))
                raise ChannelFullError(f"it is full; waited {waited_seconds:.2f} s")
            raise NoRoomYetError("it is full", lambda: self.changed)
        return super().commit(batch, producer_id, numbers)
