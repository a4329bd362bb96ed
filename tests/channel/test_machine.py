"""Any sequence of operations, on several handles and groups, against lists: both tiers, kills, and lost hosts."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spillable_stream import Channel, ChannelFullError, Event, MemoryLossWarning, TakeTransaction
from spillable_stream.channel import claims
from spillable_stream.engine import deliveries as deliveries_module
from spillable_stream.engine.expiry import now_us
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.log import head as head_module
from tests.support.damage import kill, lose_memory
from tests.support.examples import examples
from tests.support.scratch import scratch_directory

GROUPS = ["a", "b", "c"]
TTLS = st.sampled_from([None, None, 1500, 2500])  # in seconds; the clock goes in steps of 1,000
MOSTLY = st.sampled_from([True, True, True, False])


@dataclass
class Group:
    """What a group has yet to take, what its open transaction holds, and what expired before that, as write-order IDs.

    The next commit counts what expired.
    """

    queue: list[int]
    held: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    expired_events: int = 0
    transaction: TakeTransaction | None = None


@dataclass
class Delayed:
    """A delayed event: when it is due, and what it is."""

    due_ms: int
    body: bytes
    ttl: float | None


class ChannelMachine(RuleBasedStateMachine):
    """A channel beside lists that say what it must hold."""

    memory_capacity = 0
    capacity = 25

    def __init__(self) -> None:
        super().__init__()
        self.directory = scratch_directory()
        self.path = self.directory / "channel"
        self.stored: dict[int, bytes] = {}  # every event that was put and not lost, by ID
        self.memory: set[int] = set()  # those that were put in memory and not moved
        self.overflow = False
        self.last_id = 0
        self.groups: dict[str, Group] = {}
        self.handles: list[Channel] = []
        self.real_boot, self.boots = head_module.boot_id, 0
        self.now_ms = time.time_ns() // 1_000_000
        self.waiting: list[Delayed] = []  # in the order of their puts
        self.ttls: dict[int, float] = {}  # in seconds
        self.passed_seconds = 0
        self.clocks = ExitStack()
        for module, name, clock in (
            (claims, "now_us", lambda: now_us() + self.passed_seconds * 1_000_000),
            (deliveries_module, "wall_clock_ms", lambda: self.now_ms),  # of an open, too
        ):
            self.clocks.enter_context(mock.patch.object(module, name, clock))

    # ── handles ─────────────────────────────────────────────────────────────────────────────────

    def open(self) -> Channel:
        return Channel(
            self.path,
            minimum_required_space=0,
            keep_alive=0,
            memory_capacity=self.memory_capacity,
            overflow_timeout=0,
            overflow_capacity=self.capacity,
            max_file_size=1800,
            max_inline_bytes=700,
            checkpoint_on_close=False,
        )

    @precondition(lambda self: len(self.handles) < 3)
    @rule()
    def open_handle(self) -> None:
        self.handles.append(self.open())

    def handle(self, number: int) -> Channel:
        if not self.handles:
            self.handles.append(self.open())
        return self.handles[number % len(self.handles)]

    def owner(self, name: str, number: int) -> int:
        """Return the number of the handle that owns the group, or ``number`` if none does."""
        for i, channel in enumerate(self.handles):
            if name in channel._open.owned.consumers:
                return i
        return number

    def give_back(self, channel: Channel) -> None:
        """Return to the queues what transactions of a handle hold that comes to its end."""
        for name, group in self.groups.items():
            if name in channel._open.owned.consumers:
                group.queue = sorted(group.held + group.passed + group.queue)
                group.transaction, group.held, group.passed = None, [], []

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 2), checkpoint=st.booleans())
    def close_handle(self, number: int, checkpoint: bool) -> None:
        channel = self.handle(number)
        self.give_back(channel)
        had_memory = os.path.lexists(self.path / "memory")
        channel.close(checkpoint=checkpoint)
        self.handles.remove(channel)
        if not self.handles:  # the last one moves memory to disk
            self.overflow = self.overflow and not had_memory
            self.memory.clear()
            assert not os.path.lexists(self.path / "memory")

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 2))
    def kill_handle(self, number: int) -> None:
        """Let go of a handle as the kernel does for a killed process: nothing is written."""
        channel = self.handle(number)
        self.give_back(channel)
        self.let_go(channel)

    def let_go(self, channel: Channel) -> None:
        kill(channel)
        self.handles.remove(channel)

    def end_handles(self, clean: bool) -> None:
        """Close or kill every handle."""
        while self.handles:
            if clean:
                self.close_handle(0, checkpoint=False)
            else:
                self.kill_handle(0)

    # ── puts and takes ──────────────────────────────────────────────────────────────────────────

    def needed(self) -> set[int]:
        """Return the IDs that some group has yet to take: what counts against the capacity."""
        if not self.groups:
            return set(self.stored)
        return {i for g in self.groups.values() for i in g.queue + g.held + g.passed}

    def settle(self) -> None:
        """End the overflow if enough of the memory is free: after any commit but a put, or a delivery, which is one."""
        if self.overflow:
            free = (
                100 * (self.memory_capacity - self.memory_use()) / self.memory_capacity if self.memory_capacity else 0
            )
            self.overflow = free < 5

    def memory_use(self) -> int:
        return len(self.needed() & self.memory)

    def disk_use(self) -> int:
        return len(self.needed() - self.memory) + len(self.waiting)

    def tier_of(self, count: int) -> str:
        """Return where a put goes: "memory", "disk", or nowhere."""
        if self.memory_use() + count <= self.memory_capacity:
            return "memory"
        return "disk" if self.disk_use() + count <= self.capacity else ""

    @rule()
    def pass_time(self) -> None:
        """Let the clock by which takes judge go on; puts are stamped by the real one."""
        self.passed_seconds += 1_000

    def is_expired(self, event: int) -> bool:
        return event in self.ttls and self.ttls[event] <= self.passed_seconds

    @rule(
        number=st.integers(0, 2),
        sizes=st.lists(st.integers(0, 300), max_size=9),
        ttls=st.tuples(TTLS, TTLS),
        commit=MOSTLY,
    )
    def put(self, number: int, sizes: list[int], ttls: tuple[int | None, int | None], commit: bool) -> None:
        channel = self.handle(number)
        bodies = [b"%d:" % i + bytes(size) for i, size in enumerate(sizes)]
        tx = channel.put_transaction()
        tx.begin()
        half = len(bodies) // 2
        tx.put_many([Event(b) for b in bodies[:half]], ttl=ttls[0])
        tx.put_many([Event(b) for b in bodies[half:]], ttl=ttls[1])
        if not commit:
            tx.rollback()
            return
        tier = self.tier_of(len(bodies))
        try:
            tx.commit()
            assert tier or not bodies
        except ChannelFullError:
            assert not tier
            tx.rollback()
            return
        if not bodies:
            return
        assert tx.committed.first_id == self.last_id + 1
        new = self.enter(bodies, [ttls[n >= half] for n in range(len(bodies))])
        if tier == "memory":
            self.memory.update(new)
        elif 0 < len(bodies) <= self.memory_capacity:
            self.overflow = True

    @rule(
        number=st.integers(0, 2),
        delays=st.lists(st.tuples(st.integers(1, 400), TTLS), max_size=6),
        more=st.integers(0, 2),
    )
    def put_delayed(self, number: int, delays: list[tuple[int, int | None]], more: int) -> None:
        """Put events that wait, each with a due time and a ttl of its own, in one transaction with others."""
        channel, late = self.handle(number), list[Delayed]()
        for seconds, ttl in delays:
            due_ms = self.now_ms + 1000 * seconds
            while any(d.due_ms == due_ms for d in self.waiting + late):  # no two at once: the clock goes back
                due_ms += 1
            late.append(Delayed(due_ms, b"due %d" % due_ms, ttl))
        bodies = [b"now %d" % i for i in range(more)]
        tx = channel.put_transaction()
        tx.begin()
        for delayed in late:
            tx.put(Event(delayed.body), ttl=delayed.ttl, deliver_after=(delayed.due_ms - self.now_ms) / 1000)
        tx.put_many(Event(b) for b in bodies)
        fits = self.disk_use() + len(late) + more <= self.capacity if late else bool(self.tier_of(more))
        try:
            tx.commit()
            assert fits or not (late or bodies)
        except ChannelFullError:
            assert not fits
            tx.rollback()
            return
        if bodies and not late and self.tier_of(more) == "memory":
            self.memory.update(range(self.last_id + 1, self.last_id + 1 + more))
        elif 0 < more <= self.memory_capacity and not late:
            self.overflow = True
        self.enter(bodies, [None] * more)
        self.waiting += late

    def enter(self, bodies: list[bytes], ttls: Sequence[float | None]) -> range:
        """Note events that are in the order now, and return their IDs."""
        new = range(self.last_id + 1, self.last_id + 1 + len(bodies))
        self.last_id += len(bodies)
        self.stored.update(zip(new, bodies, strict=True))
        self.ttls.update({i: ttl for i, ttl in zip(new, ttls, strict=True) if ttl is not None})
        for group in self.groups.values():
            group.queue += new
        return new

    @rule(number=st.integers(0, 2), seconds=st.integers(-100, 300))
    def look_at_the_clock(self, number: int, seconds: int) -> None:
        """Let time pass, or the clock go back, and let a handle deliver what is due."""
        self.now_ms += 1000 * seconds
        deliveries = self.handle(number).engine().deliveries
        delivered = False
        self.handle(number).engine().follow()
        while deliveries.deliver():
            delivered = True
        due = sorted((d for d in self.waiting if d.due_ms <= self.now_ms), key=lambda d: d.due_ms)
        assert delivered == bool(due)
        self.waiting = [d for d in self.waiting if d.due_ms > self.now_ms]
        self.enter([d.body for d in due], [d.ttl for d in due])

    @rule(number=st.integers(0, 2), name=st.sampled_from(GROUPS), limit=st.integers(1, 12))
    def take(self, number: int, name: str, limit: int) -> None:
        group = self.groups.get(name)
        if group is None:
            needed = self.needed()  # a new group starts at the first event that any other still needs
            first = min(needed, default=self.last_id + 1)
            left = self.memory - needed  # that every group has taken, ahead of others: memory frees it
            group = self.groups[name] = Group([i for i in self.stored if i >= first and i not in left])
            self.handle(self.owner(name, number))
            self.settle()
        if group.transaction is None:
            channel = self.handle(self.owner(name, number))
            group.transaction = channel.take_transaction(name)
            group.transaction.begin()
        found = group.transaction.take_many(limit)
        expected = [i for i in group.queue if not self.is_expired(i)][:limit]
        through = expected[-1] if len(expected) == limit else self.last_id
        group.passed += [i for i in group.queue if i <= through and self.is_expired(i)]
        group.queue = [i for i in group.queue if i > through]
        assert [(e.write_order_id, e.body) for e in found] == [(i, self.stored[i]) for i in expected]
        group.held += expected
        if not expected and group.passed:
            self.count_expired(group)
            self.settle()

    def count_expired(self, group: Group) -> None:
        """Note that what had expired is committed."""
        group.expired_events += len(group.passed)
        group.passed = []

    @precondition(lambda self: any(g.transaction for g in self.groups.values()))
    @rule(data=st.data(), commit=MOSTLY)
    def end_take(self, data: st.DataObject, commit: bool) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, g in self.groups.items() if g.transaction)))
        group = self.groups[name]
        assert group.transaction is not None
        if commit:
            group.transaction.commit()
        else:
            group.transaction.rollback()
            group.queue = group.held + group.queue
        took, group.transaction, group.held = commit and bool(group.held), None, []
        if took:
            self.count_expired(group)
            self.settle()

    @precondition(lambda self: any(not g.transaction for g in self.groups.values()))
    @rule(data=st.data())
    def drop_group(self, data: st.DataObject) -> None:
        if len(self.groups) == 1:
            return  # the last group's events would go on counting: that has a test of its own
        name = data.draw(st.sampled_from(sorted(n for n, g in self.groups.items() if not g.transaction)))
        self.handle(self.owner(name, 0)).drop_group(name)
        del self.groups[name]
        self.settle()

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 2))
    def checkpoint(self, number: int) -> None:
        self.handle(number).checkpoint()

    # ── what happens to hosts ───────────────────────────────────────────────────────────────────

    @rule(clean=st.booleans())
    def damage_head(self, clean: bool) -> None:
        """Close or kill everything, lose the head, and start from the files."""
        self.end_handles(clean)
        (self.path / "head").unlink(missing_ok=True)

    @invariant()
    def every_handle_counts_the_same(self) -> None:
        needed = self.needed()
        runs = [
            len(list(run)) * (1 if in_memory else -1)
            for in_memory, run in groupby(sorted(needed), key=lambda i: i in self.memory)
        ]
        for channel in self.handles:
            stats = channel.stats()
            assert stats.last_id == self.last_id
            assert stats.channel_size == len(needed)
            assert (stats.memory.events, stats.disk.events) == (self.memory_use(), self.disk_use())
            assert stats.delayed.events == len(self.waiting)
            assert stats.delayed.next_due == (min(d.due_ms for d in self.waiting) / 1000 if self.waiting else None)
            assert stats.drain_order == runs
            assert stats.overflow_active == self.overflow
            assert (stats.memory.payload_bytes == 0) == (self.memory_use() == 0)
            for name, group in self.groups.items():
                assert stats.groups[name].lag == len(group.queue) + len(group.held) + len(group.passed)
                assert stats.groups[name].expired_events == group.expired_events

    def teardown(self) -> None:
        self.end_handles(clean=True)
        with self.open() as channel:
            for name, group in self.groups.items():
                with channel.take_transaction(name) as tx:
                    left = [i for i in group.queue if not self.is_expired(i)]
                    assert [e.write_order_id for e in tx.take_many(10_000)] == left
        self.clocks.close()
        head_module.boot_id = self.real_boot
        shutil.rmtree(self.directory)


class SpillMachine(ChannelMachine):
    """The same with a memory tier, whose capacity changes, hosts that lose it, and a producer that sends again."""

    memory_capacity = 15

    def __init__(self) -> None:
        super().__init__()
        self.batches: dict[int, list[Event]] = {}  # by the ID of the first event; its number is that ID, too

    @rule(capacity=st.sampled_from([0, 4, 15, 40]))
    def resize(self, capacity: int) -> None:
        is_new = capacity != self.memory_capacity or not self.path.exists()
        self.memory_capacity = capacity
        if len(self.handles) == 3:
            self.kill_handle(0)
        self.open_handle()
        if is_new:  # what the channel has already is not committed again
            self.settle()

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 2))
    def flush(self, number: int) -> None:
        moved = self.handle(number).flush()
        assert moved >= self.memory_use()
        self.memory.clear()
        if moved:
            self.settle()

    def send(self, number: int, sequence: int, events: list[Event]) -> None:
        """Send a numbered batch, whose answer is the ID of its first event."""
        with self.handle(number).put_transaction() as tx:
            tx.put_many(events)
            tx.producer = NumberedBatch("producer", Numbers(sequence, sequence, BY_PRODUCER))
        assert (tx.committed.first_id, tx.committed.last_id) == (sequence, sequence + len(events) - 1)

    @rule(number=st.integers(0, 2), count=st.integers(1, 3))
    def send_first(self, number: int, count: int) -> None:
        sequence, tier = self.last_id + 1, self.tier_of(count)
        if not tier:
            return
        events = [Event(b"%d of the batch %d" % (i, sequence)) for i in range(count)]
        self.send(number, sequence, events)
        self.batches[sequence] = events
        new = self.enter([event.body for event in events], [None] * count)
        if tier == "memory":
            self.memory.update(new)
        elif count <= self.memory_capacity:
            self.overflow = True

    @precondition(lambda self: self.batches)
    @rule(number=st.integers(0, 2), data=st.data())
    def send_again(self, number: int, data: st.DataObject) -> None:
        """Send a batch whose answer was lost: the events are there once, wherever they are, taken or not."""
        sequence = data.draw(st.sampled_from(sorted(self.batches)))
        self.send(number, sequence, self.batches[sequence])

    @rule(rebooted=st.booleans())
    def lose_memory(self, rebooted: bool) -> None:
        """Kill everything and take the memory away; the next open says exactly what is lost."""
        while self.handles:
            self.kill_handle(0)
        if not os.path.lexists(self.path / "memory"):
            return
        known = (self.path / "head").exists()
        lose_memory(self.path)
        if rebooted:
            self.boots += 1
            head_module.boot_id = lambda boot=self.boots: boot.to_bytes(16)  # type: ignore[misc]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.handles.append(self.open())
        found = [w.message for w in caught if isinstance(w.message, MemoryLossWarning)]
        lost = {i for w in found for a, b in w.lost for i in range(a, b + 1)}
        truth = self.needed() & self.memory
        if known:
            assert lost == truth
        else:  # nothing says what memory held but the disk
            assert all(i in lost or any(a <= i <= b for w in found for a, b in w.doubtful) for i in truth)
        with self.handles[0].engine().snapshot() as state:
            numbers = {n: Numbers(n, n, BY_PRODUCER) for n in self.batches}
            forgotten = {n for n in numbers if state.producers.answer("producer", numbers[n]) is None}
        assert forgotten <= self.memory  # what is on disk is known
        self.batches = {n: events for n, events in self.batches.items() if n not in forgotten}
        for i in self.memory:
            self.stored.pop(i, None)
        for group in self.groups.values():
            group.queue = [i for i in group.queue if i not in self.memory]
        for name, found_group in self.handles[0].stats().groups.items():  # what only memory knew of it is lost, too
            assert found_group.expired_events <= self.groups[name].expired_events
            self.groups[name].expired_events = found_group.expired_events
        self.memory.clear()
        self.overflow = False
        last_id = self.handles[0].stats().last_id
        assert last_id >= self.last_id
        self.last_id = last_id


TestChannelMachine = ChannelMachine.TestCase
TestChannelMachine.settings = settings(max_examples=examples(80), stateful_step_count=60)
TestSpillMachine = SpillMachine.TestCase
TestSpillMachine.settings = settings(max_examples=examples(120), stateful_step_count=60)
