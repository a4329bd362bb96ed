"""Any sequence of operations on handles with a spool in front of a channel in a store, and without, beside lists."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from spillable_stream import Channel, Event, MemoryLossWarning, PutTransaction, SpillableError, StorageError
from spillable_stream.channel import spool as spool_module
from spillable_stream.channel import spool_mover
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.spool_mover import SpoolMover
from spillable_stream.engine.store import object_owners
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.objects.store import Store
from tests.channel.test_machine import MOSTLY, TTLS, Delayed
from tests.channel.test_object_machine import OPTIONS, ObjectMachine
from tests.support.damage import lose_memory, remove_memory_under
from tests.support.examples import examples
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.object_channels import kill, store_of
from tests.support.spools import ByHand, kill_with_spool, open_spooled, spool_of

PUT_EVENTS = 6  # that are shipped at once
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICKS_US = 500_000  # more than the clock goes on by itself, and less than the second in which it is moved
TROUBLES = st.sampled_from(
    ["", "", "", "is down", "dies before it is there", "dies when it is", "dies before the take"]
)


@dataclass
class Spooled:
    """An event of the spool.

    Args:
        id: its ID in the spool.
        body: what it is.
        due_ms: when it is due; 0 for now.
        ttl: its ttl, in seconds.
        put_us: when it was put.
        in_memory: whether it is in the spool's memory tier.
    """

    id: int
    body: bytes
    due_ms: int
    ttl: float | None
    put_us: int
    in_memory: bool


class Killed(BaseException):
    """The process is no more."""


class SpoolMachine(ObjectMachine):
    """The same with a spool in front, which holds what the store has yet to get, and one clock for everything."""

    capacity = 100_000
    durability = "local"

    @staticmethod
    def seen_by(store: Store) -> Store:
        return FaultyStore(store)

    def __init__(self) -> None:
        super().__init__()
        self.spool = self.directory / "spool"
        self.spooled: list[list[Spooled]] = []  # transactions that are not in the store
        self.untaken: list[Spooled] = []  # what is in the store, and not yet taken from the spool
        self.mover: Channel | None = None  # the handle that ships
        self.bodies, self.ticks = 0, 0
        for owner, name, value in (
            (time, "time_ns", self.tick),
            (spool_module, "PeriodicThread", ByHand),
            (object_owners, "PeriodicThread", ByHand),
            (spool_mover, "_PUT_EVENTS", PUT_EVENTS),
        ):
            self.clocks.enter_context(mock.patch.object(owner, name, value))

    # ── the clock ───────────────────────────────────────────────────────────────────────────────

    def tick(self) -> int:
        """Return the time in nanoseconds: no two moments are one."""
        self.ticks += 1
        return 1_000_000 * self.now_ms + 1000 * self.ticks

    @rule()
    def pass_time(self) -> None:
        """Let the one clock go on."""
        self.look_at_the_clock(0, 1000)

    def enter(self, bodies: list[bytes], ttls: Sequence[float | None]) -> range:
        """Note events that are in the order now: a ttl counts from the commit, whose time never goes back."""
        time_us = self.handle(0).engine().follow().time_us
        return super().enter(bodies, [None if ttl is None else time_us / 1e6 + ttl for ttl in ttls])

    def is_expired(self, event: int) -> bool:
        return event in self.ttls and 1e6 * self.ttls[event] <= 1000 * self.now_ms + TICKS_US

    # ── handles ─────────────────────────────────────────────────────────────────────────────────

    def open(self) -> Channel:
        return open_spooled(self.spool, durability=self.durability, overflow_capacity=self.capacity, **OPTIONS)

    @precondition(lambda self: len(self.handles) < 3)
    @rule()
    def open_without_spool(self) -> None:
        """Open a handle that puts to the store, as another host does."""
        self.handles.append(super().open())

    def with_spool(self) -> list[Channel]:
        return [channel for channel in self.handles if channel._open.spool is not None]

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 2), checkpoint=st.booleans())
    def close_handle(self, number: int, checkpoint: bool) -> None:
        channel = self.handle(number)
        super().close_handle(number, checkpoint)
        if channel._open.spool is None:
            return
        if self.mover in (None, channel):
            self.mover = None
            while self.spooled:
                self.enter_first()
            self.untaken = []
        if not self.with_spool():  # the last one moves memory to disk
            for row in chain(self.untaken, *self.spooled):
                row.in_memory = False

    def let_go(self, channel: Channel) -> None:
        if channel._open.spool is None:
            kill(channel)
        else:
            kill_with_spool(channel)
        self.handles.remove(channel)
        if self.mover is channel:
            self.mover = None

    # ── puts ────────────────────────────────────────────────────────────────────────────────────

    @rule(
        number=st.integers(0, 2),
        sizes=st.lists(st.integers(0, 300), max_size=9),
        ttls=st.tuples(TTLS, TTLS),
        commit=MOSTLY,
    )
    def put(self, number: int, sizes: list[int], ttls: tuple[int | None, int | None], commit: bool) -> None:
        if self.handle(number)._open.spool is None:
            super().put(number, sizes, ttls, commit)
        else:
            half = len(sizes) // 2
            self.put_to_spool(number, [(0, size, ttls[n >= half]) for n, size in enumerate(sizes)], commit)

    @rule(
        number=st.integers(0, 2),
        delays=st.lists(st.tuples(st.sampled_from([0, 1, 1, 50, 50, 150, 400]), TTLS), max_size=8),
        more=st.integers(0, 2),
    )
    def put_delayed(self, number: int, delays: list[tuple[int, int | None]], more: int) -> None:
        if self.handle(number)._open.spool is None:
            super().put_delayed(number, [(seconds + 1, ttl) for seconds, ttl in delays], more)
        else:
            self.put_to_spool(number, [(seconds, 0, ttl) for seconds, ttl in delays], commit=True)

    def put_to_spool(self, number: int, events: list[tuple[int, int, int | None]], commit: bool) -> None:
        """Put events that are due in some seconds, of some size and ttl, as one transaction, in this order."""
        channel = self.handle(number)
        tx = channel.put_transaction()
        tx.begin()
        rows: list[Spooled] = []
        for seconds, size, ttl in events:
            self.bodies += 1
            body, due_ms = b"%d:" % self.bodies + bytes(size), self.now_ms + 1000 * seconds
            tx.put(Event(body), ttl=ttl, deliver_at=EPOCH + timedelta(milliseconds=due_ms))
            rows.append(Spooled(0, body, due_ms if seconds else 0, ttl, 0, self.durability == "memory"))
        if not commit:
            tx.rollback()
            return
        tx.commit()
        if rows:
            put_us = spool_of(channel)._local.engine().follow().time_us
            for i, row in enumerate(rows, tx.committed.first_id):
                row.id, row.put_us = i, put_us
            self.spooled.append(rows)

    # ── shipping ────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.with_spool())
    @rule(number=st.integers(0, 2), trouble=TROUBLES)
    def ship(self, number: int, trouble: str) -> None:
        """Ship one put; or die, or be refused, in the middle of it."""
        found = self.with_spool()
        channel = found[number % len(found)]
        spool = spool_of(channel)
        if self.mover not in (None, channel):
            assert not spool._ship()
            return
        self.mover = channel
        assert spool._mover.own()
        if not self.spooled or not trouble:
            assert spool._ship()
            if self.spooled:
                self.enter_first()
            self.untaken = []
        elif trouble == "is down":
            store_of(channel).schedule = lambda asked: Fault.UNAVAILABLE if asked.kind == "create" else None
            backoff = channel.engine().log._appending.backoff  # type: ignore[attr-defined]
            with mock.patch.object(backoff, "timeout_seconds", 0), pytest.raises(StorageError):
                spool._ship()
            store_of(channel).schedule = None
        else:
            self.die_while_shipping(channel, trouble)

    def die_while_shipping(self, channel: Channel, trouble: str) -> None:
        def die(*_: object) -> None:
            raise Killed

        def die_at_a_slot(request: Request) -> None:
            if request.kind == "create" and request.key.startswith("log/"):
                raise Killed

        if trouble == "dies before it is there":
            store_of(channel).schedule = die_at_a_slot
        elif trouble == "dies when it is there":
            store_of(channel).after = die_at_a_slot
        self.give_back(channel)
        with mock.patch.object(Consumer, "commit", die), pytest.raises(Killed):
            spool_of(channel)._ship()
        self.let_go(channel)
        if trouble != "dies before it is there":
            self.untaken += self.enter_first()

    def enter_first(self) -> list[Spooled]:
        """Note the first of the spool's transactions in the store, as many as are shipped at once; return them."""
        pieces = self.first_pieces()
        shipped = [row for piece in pieces for row in piece]
        self.spooled = [left for rows in self.spooled if (left := [r for r in rows if r.id > shipped[-1].id])]
        for piece in pieces:
            now = [r for r in piece if not r.due_ms]
            late = sorted((r for r in piece if r.due_ms), key=lambda r: r.due_ms)
            now += [r for r in late if r.due_ms <= self.now_ms]
            self.enter([r.body for r in now], list(map(self.ttl_left, now)))
            self.waiting += [Delayed(r.due_ms, r.body, r.ttl) for r in late if r.due_ms > self.now_ms]
        return shipped

    def first_pieces(self) -> list[list[Spooled]]:
        """Return whole transactions, as many as fit; one that is larger in two pieces."""
        rows = [row for each in self.spooled for row in each]
        first = [row for row in rows if row.id < rows[0].id + PUT_EVENTS]
        if len(first) == len(rows):
            return [first]
        tail = next(each for each in self.spooled if first[-1] in each)
        if tail[0].id > rows[0].id:
            return [[row for row in first if row.id < tail[0].id]]
        return [piece for piece in (first, tail[len(first) :]) if piece]

    def ttl_left(self, row: Spooled) -> float | None:
        """Return what is left of an event's ttl, of which it loses what it waited after it was due."""
        if row.ttl is None:
            return None
        since_ms = row.due_ms or row.put_us / 1000
        return min(row.ttl, max(1e-6, row.ttl - (self.now_ms - since_ms) / 1000))

    @invariant()
    def the_spool_counts_what_is_not_shipped(self) -> None:
        for channel in self.with_spool():
            stats = channel.stats().spool
            assert stats is not None
            assert stats.events == sum(map(len, self.spooled)) + len(self.untaken)

    def teardown(self) -> None:
        try:
            self.ship_and_take_all()
            super().teardown()
        finally:  # a mover that is broken fails here, too
            self.clocks.close()
            self.stack.close()
            remove_memory_under(self.directory)
            shutil.rmtree(self.directory, ignore_errors=True)

    def ship_and_take_all(self) -> None:
        self.end_handles(clean=True)
        with self.open() as channel:
            channel.flush()
            while self.spooled:
                self.enter_first()
            self.untaken = []
        self.look_at_the_clock(0, 1000)
        self.take(0, "a", 100_000)
        self.every_handle_counts_the_same()


class MemorySpoolMachine(SpoolMachine):
    """The same with a spool in memory, which hosts lose."""

    durability = "memory"

    @rule()
    def lose_memory(self) -> None:
        """Kill everything and take the memory away: what was not in the store by then is lost, and is said to be."""
        while self.handles:
            self.kill_handle(0)
        if not os.path.lexists(self.spool / "memory"):
            return
        lose_memory(self.spool)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.handles.append(self.open())
        found = [w.message for w in caught if isinstance(w.message, MemoryLossWarning)]
        lost = {i for w in found for a, b in w.lost for i in range(a, b + 1)}
        assert lost == {row.id for row in chain(self.untaken, *self.spooled) if row.in_memory}
        self.spooled = [left for rows in self.spooled if (left := [r for r in rows if not r.in_memory])]
        self.untaken = [row for row in self.untaken if not row.in_memory]


TestSpoolMachine = SpoolMachine.TestCase
TestSpoolMachine.settings = settings(max_examples=examples(120), stateful_step_count=60)
TestMemorySpoolMachine = MemorySpoolMachine.TestCase
TestMemorySpoolMachine.settings = settings(max_examples=examples(80), stateful_step_count=60)


# ── the machine itself ──────────────────────────────────────────────────────────────────────────


def forget_dues(monkeypatch: pytest.MonkeyPatch) -> None:
    def put_now(mover: SpoolMover, tx: PutTransaction, piece: list[ReadBatch]) -> None:
        if piece:
            spool_mover._put_now(tx, piece, mover._spool.schemas()[-1])

    monkeypatch.setattr(SpoolMover, "_put_due", put_now)


def put_due_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    put_due = SpoolMover._put_due
    monkeypatch.setattr(SpoolMover, "_put_due", lambda *given: [put_due(*given) for _ in range(2)])


def lose_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_mover, "sorted", lambda found, key: list(found), raising=False)


def begin_ttls_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_mover, "ttl_left_us", lambda time_us, expires_us, _: expires_us and expires_us - time_us)


def keep_the_whole_ttl_of_what_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_mover, "max", lambda *given: 0 if given[0] == 0 else max(*given), raising=False)


def take_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = SpoolMover._publish

    def take_first(mover: SpoolMover, consumer: Consumer, first: int, last: int) -> int:
        consumer.commit(consumer.untaken(first, last))
        return publish(mover, consumer, first, last)

    monkeypatch.setattr(SpoolMover, "_publish", take_first)


@pytest.mark.crash
@pytest.mark.parametrize(
    "break_it",
    [
        forget_dues,
        put_due_twice,
        lose_the_order,
        begin_ttls_anew,
        keep_the_whole_ttl_of_what_is_late,
        take_before_it_is_there,
    ],
)
def test_a_mover_that_is_broken_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    tried = settings(max_examples=60, stateful_step_count=60, phases=[Phase.generate], database=None)
    with pytest.raises((AssertionError, SpillableError, pytest.fail.Exception)):
        run_state_machine_as_test(SpoolMachine, settings=tried)
