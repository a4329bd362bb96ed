"""Any sequence of puts, takes, seeks, reads and expiries, with retention or without, against lists; with crashes."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spillable_stream import (
    Channel,
    DataLossError,
    Event,
    GroupOwnedError,
    MemoryLossWarning,
    OptionError,
    TakeTransaction,
)
from spillable_stream.engine.local.upkeep import Upkeep
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.verify import verify
from tests.support.damage import kill, lose_memory
from tests.support.examples import examples
from tests.support.scratch import scratch_directory

GROUPS = ["a", "b", "c"]
MOSTLY = st.sampled_from([True, True, True, False])
RARELY = st.sampled_from([False, False, False, True])
SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=9)
NEVER_BYTES = 1 << 40  # so many bytes are never kept: nothing leaves but what a rule lets go


@dataclass
class Group:
    """What a group has yet to take and what its open transaction holds, as write-order IDs.

    A take ends the report of what expired before it. One of events in memory is lost with the memory, and with it that
    end: what is reported again then is of `ended_in_memory`.
    """

    queue: list[int]
    expired: set[int] = field(default_factory=set)
    ended_in_memory: set[int] = field(default_factory=set)
    held: list[int] = field(default_factory=list)
    transaction: TakeTransaction | None = None

    def untaken(self) -> list[int]:
        return sorted(self.held + self.queue)


class KeepingMachine(RuleBasedStateMachine):
    """A channel that keeps taken events, or not, beside lists that say what it must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = scratch_directory()
        self.path = self.directory / "channel"
        self.bodies: dict[int, bytes] = {}
        self.gone: set[int] = set()  # with a memory tier
        self.last_id, self.floor, self.first_kept = 0, 1, 1
        self.keeps, self.memory_capacity = False, 0
        self.groups: dict[str, Group] = {}
        self.by_hand = mock.patch.object(Upkeep, "ensure", lambda _: None)
        self.by_hand.start()
        self.handles: list[Channel] = []

    # ── handles ─────────────────────────────────────────────────────────────────────────────────

    @initialize(keeps=MOSTLY, memory=st.booleans())
    def open_first(self, keeps: bool, memory: bool) -> None:
        self.keeps, self.memory_capacity = keeps, 15 if memory else 0
        self.handles.append(self.open())
        self.take(0, "a", 1)
        for _ in range(3):
            self.put_and_take(0, [100] * 5)

    def open(self) -> Channel:
        return Channel(
            self.path,
            minimum_required_space=0,
            keep_alive=0,
            memory_capacity=self.memory_capacity,
            byte_capacity=1 << 20,
            overflow_timeout=0,
            max_file_size=1800,
            max_inline_bytes=700,
            retention_bytes=NEVER_BYTES if self.keeps else 0,
            checkpoint_on_close=False,
        )

    def handle(self, number: int) -> Channel:
        return self.handles[number % len(self.handles)]

    def owner(self, name: str, number: int) -> Channel:
        """Return the handle that owns a group, or another one if none does."""
        return next((c for c in self.handles if name in c._open.owned.consumers), self.handle(number))

    def give_back(self, channel: Channel) -> None:
        """Return to the queues what transactions of a handle hold that comes to its end."""
        for name, group in self.groups.items():
            if group.transaction and name in channel._open.owned.consumers:
                group.queue = group.untaken()
                group.transaction, group.held = None, []

    @precondition(lambda self: len(self.handles) < 2)
    @rule()
    def open_another(self) -> None:
        self.handles.append(self.open())

    @rule(number=st.integers(0, 1), clean=st.booleans(), checkpoint=st.booleans(), really=RARELY)
    def end_handle(self, number: int, clean: bool, checkpoint: bool, really: bool = True) -> None:
        """Close a handle, or let go of it as the kernel does for a killed process; somebody opens the channel again."""
        if not really:
            return
        channel = self.handle(number)
        self.give_back(channel)
        if clean:
            channel.close(checkpoint=checkpoint)
        else:
            kill(channel)
        self.handles.remove(channel)
        if not self.handles:
            self.handles.append(self.open())

    @rule(really=RARELY)
    def crash(self, really: bool) -> None:
        """Kill everything, lose the head, and start from the files."""
        if not really:
            return
        for channel in self.handles:
            self.give_back(channel)
            kill(channel)
        (self.path / "head").unlink(missing_ok=True)
        self.handles = [self.open()]

    @precondition(lambda self: os.path.lexists(self.path / "memory"))
    @rule(really=RARELY)
    def lose_memory(self, really: bool) -> None:
        """Kill everything and take the memory away: the next open says what is lost of what somebody needs, or kept."""
        if not really:
            return
        memory = self.in_memory()
        for channel in self.handles:
            self.give_back(channel)
            kill(channel)
        lose_memory(self.path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.handles = [self.open()]
        found = [w.message for w in caught if isinstance(w.message, MemoryLossWarning)]
        lost = {i for w in found for a, b in w.lost for i in range(a, b + 1)}
        untaken = {i for group in self.groups.values() for i in group.queue}
        begin = min([self.floor, *untaken])
        needed = untaken if self.groups else {i for i in self.there() if i >= self.floor}
        assert lost == {i for i in memory if self.first_kept <= i < begin or i in needed}
        stats = self.handles[0].stats()
        self.gone |= memory | set(range(self.last_id + 1, stats.last_id + 1))
        self.last_id = stats.last_id
        for name, group in self.groups.items():
            group.queue = [i for i in group.queue if i not in self.gone]
            again = ids_of(stats.groups[name].removed) - group.expired
            assert again <= group.ended_in_memory
            group.expired |= again
        self.settle()

    def in_memory(self) -> set[int]:
        return {i for b in self.handles[0].engine().follow().blocks.memory for i in range(b.first_id, b.last_id + 1)}

    @rule(keeps=MOSTLY, capacity=st.sampled_from([0, 4, 15]), really=RARELY)
    def change_options(self, keeps: bool, capacity: int, really: bool) -> None:
        if not really:
            return
        self.keeps, self.memory_capacity = keeps, capacity
        if len(self.handles) == 2:
            self.end_handle(0, clean=False, checkpoint=False)
        self.handles.append(self.open())
        self.settle()

    def there(self, first: int = 0) -> list[int]:
        """Return the IDs of the events that are there, from one on."""
        return [i for i in self.bodies if i >= max(first, self.first_kept) and i not in self.gone]

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Raise the floor as far as all groups have come, and let go of what nobody asks to keep."""
        firsts = [min(group.untaken(), default=self.last_id + 1) for group in self.groups.values()]
        self.floor = max(self.floor, min(firsts, default=0))
        while not firsts and self.floor in self.gone:
            self.floor += 1
        if not self.keeps:
            self.first_kept = max(self.first_kept, min([self.floor, *firsts]))

    @rule(number=st.integers(0, 1), sizes=SIZES, commit=MOSTLY)
    def put(self, number: int, sizes: list[int], commit: bool) -> None:
        bodies = [b"%d:" % i + bytes(size) for i, size in enumerate(sizes)]
        tx = self.handle(number).put_transaction()
        tx.begin()
        tx.put_many(Event(b) for b in bodies)
        if not commit:
            tx.rollback()
            return
        tx.commit()
        new = range(self.last_id + 1, self.last_id + 1 + len(bodies))
        self.last_id += len(bodies)
        self.bodies.update(zip(new, bodies, strict=True))
        for group in self.groups.values():
            group.queue += new

    @rule(number=st.integers(0, 1), name=st.sampled_from(GROUPS), limit=st.integers(1, 12))
    def take(self, number: int, name: str, limit: int) -> None:
        if name not in self.groups:  # a new group starts at the first event that is kept
            self.groups[name] = Group(self.there())
        group = self.groups[name]
        if group.transaction is None:
            group.transaction = self.owner(name, number).take_transaction(name)
            group.transaction.begin()
            self.settle()
        found = group.transaction.take_many(limit)
        expected, group.queue = group.queue[:limit], group.queue[limit:]
        assert [(e.write_order_id, e.body) for e in found] == [(i, self.bodies[i]) for i in expected]
        group.held += expected

    @rule(number=st.integers(0, 1), sizes=SIZES)
    def put_and_take(self, number: int, sizes: list[int]) -> None:
        """Put events, and let every group take all that it has yet to take."""
        self.put(number, sizes, commit=True)
        for name in sorted(self.groups):
            self.take(number, name, 10_000)
            self.end(name, commit=True)

    @precondition(lambda self: any(g.transaction for g in self.groups.values()))
    @rule(data=st.data(), commit=MOSTLY)
    def end_take(self, data: st.DataObject, commit: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(n for n, g in self.groups.items() if g.transaction))), commit)

    def end(self, name: str, commit: bool) -> None:
        group = self.groups[name]
        assert group.transaction is not None
        if commit:
            in_memory = self.in_memory()
            group.transaction.commit()
            if group.held:
                ended = {i for i in group.expired if i < max(group.held)}
                group.expired -= ended
                group.ended_in_memory = group.ended_in_memory | ended if in_memory.issuperset(group.held) else set()
        else:
            group.transaction.rollback()
            group.queue = group.untaken()
        group.transaction, group.held = None, []
        self.settle()

    @precondition(lambda self: any(not g.transaction for g in self.groups.values()))
    @rule(data=st.data(), number=st.integers(0, 1))
    def drop(self, data: st.DataObject, number: int) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, g in self.groups.items() if not g.transaction)))
        if len(self.groups) > 1:
            self.owner(name, number).drop_group(name)
            del self.groups[name]
            self.settle()

    # ── going back, looking, and forgetting ─────────────────────────────────────────────────────

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), number=st.integers(0, 1), to=st.sampled_from(["earliest", "latest", *range(1, 60)]))
    def seek(self, data: st.DataObject, number: int, to: str | int) -> None:
        name = data.draw(st.sampled_from(sorted(self.groups)))
        group = self.groups[name]
        channel = self.handle(number)
        if self.owner(name, number) is not channel:
            with pytest.raises(GroupOwnedError):
                channel.seek(name, to)
            return
        beginning = self.first_kept
        while beginning - 1 in self.gone:  # whoever begins there is told of a loss
            beginning -= 1
        first = {"earliest": beginning, "latest": self.last_id + 1}.get(str(to)) or int(to)
        if first < beginning or first > self.last_id + 1:
            with pytest.raises(DataLossError if first < beginning else OptionError):
                channel.seek(name, to)
            return
        queue = self.there(first)
        assert channel.seek(name, to) == min(queue, default=self.last_id + 1)
        if group.transaction is not None:
            group.transaction.rollback()
        self.groups[name] = Group(queue)
        self.settle()

    @rule(
        number=st.integers(0, 1),
        start=st.integers(0, 40),
        count=st.integers(1, 40),
        group=st.sampled_from(["", *GROUPS]),
    )
    def read(self, number: int, start: int, count: int, group: str) -> None:
        there = self.there()
        chosen = [i for i in there if start <= i - self.first_kept < start + count]
        if not chosen or (group and group not in self.groups):
            return
        batches = self.handle(number).read(chosen[0], chosen[-1], group or None, max_bytes=500)
        found = {i: b for batch in batches for i, b in zip(*columns(batch), strict=True)}
        wanted = set(self.groups[group].untaken()) if group else set(there)
        assert found == {i: self.bodies[i] for i in chosen if i in wanted}

    @rule(number=st.integers(0, 1), back=st.integers(0, 40))
    def expire(self, number: int, back: int) -> None:
        """Let go of the first events; no group is taking any of them."""
        held = [i for group in self.groups.values() for i in group.held]
        through = min([self.first_kept - 1 + back, self.last_id, *(i - 1 for i in held)])
        self.handle(number).engine().commit(Control(FrameType.RETENTION, {"through": through}))
        if through >= self.first_kept:
            for group in self.groups.values():
                group.expired |= {i for i in group.queue if i <= through}
                group.queue = [i for i in group.queue if i > through]
            self.first_kept, self.floor = through + 1, max(self.floor, through + 1)
        self.settle()

    @rule(number=st.integers(0, 1), size_bytes=st.integers(1, 4000))
    def let_go(self, number: int, size_bytes: int) -> None:
        """Let go for space as upkeep does: whole files, and nothing that a group has yet to take."""
        engine = self.handle(number).engine()
        engine.retention.let_go_for_space(size_bytes)
        first = engine.follow().first_kept
        needed = [i for group in self.groups.values() for i in group.untaken()]
        assert self.first_kept <= first <= min([self.floor, *needed])
        self.first_kept = first

    @rule()
    def verify(self) -> None:
        """Look for damage, with handles open."""
        report = verify(self.path)
        assert report.healthy and not (report.loss.lost or report.loss.kept), report

    @rule(number=st.integers(0, 1), what=st.sampled_from(["upkeep", "checkpoint", "flush"]))
    def look_after(self, number: int, what: str) -> None:
        channel = self.handle(number)
        match what:
            case "upkeep":
                channel.engine().upkeep.look()
                channel.engine().upkeep.stop()
            case "checkpoint":
                channel.checkpoint()
            case "flush":
                channel.flush()

    # ── what always holds ───────────────────────────────────────────────────────────────────────

    @invariant()
    def every_handle_counts_the_same(self) -> None:
        for channel in self.handles:
            stats = channel.stats()
            assert (stats.last_id, stats.kept.first_id) == (self.last_id, self.first_kept)
            assert stats.kept.events == len([i for i in self.there() if i < self.floor])
            needed = {i for group in self.groups.values() for i in group.untaken() if i >= self.floor}
            assert stats.channel_size == len(needed if self.groups else self.there(self.floor))
            for name, group in self.groups.items():
                found = stats.groups[name]
                assert found.lag == len(group.untaken()), name
                assert ids_of(found.removed) == group.expired, name

    def teardown(self) -> None:
        try:
            for channel in self.handles:
                self.give_back(channel)
                channel.close()
            if self.handles:
                assert verify(self.path).healthy
                with self.open() as channel:
                    for name, group in self.groups.items():
                        with channel.take_transaction(name) as tx:
                            assert [e.write_order_id for e in tx.take_many(10_000)] == group.queue
        finally:
            self.by_hand.stop()
            shutil.rmtree(self.directory)


def ids_of(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {i for a, b in ranges for i in range(a, b + 1)}


def columns(batch: object) -> tuple[list[int], list[bytes]]:
    return batch.column("write_order_id").to_pylist(), batch.column("body").to_pylist()  # type: ignore[attr-defined]


TestKeepingMachine = KeepingMachine.TestCase
TestKeepingMachine.settings = settings(max_examples=examples(100), stateful_step_count=40)
