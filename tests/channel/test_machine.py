"""Any sequence of operations, on several handles and groups, against lists."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spillable_stream import Channel, ChannelFullError, Event, TakeTransaction

GROUPS = ["a", "b", "c"]
CAPACITY = 25
MOSTLY = st.sampled_from([True, True, True, False])


@dataclass
class Group:
    """What a group has yet to take and what its open transaction holds, as write-order IDs."""

    queue: list[int]
    held: list[int] = field(default_factory=list)
    transaction: TakeTransaction | None = None
    handle: int = 0


class ChannelMachine(RuleBasedStateMachine):
    """A channel beside lists that say what it must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.stored: dict[int, bytes] = {}  # every event ever put, by ID
        self.groups: dict[str, Group] = {}
        self.handles: list[Channel] = []
        self.options: dict[str, Any] = {}

    def open(self) -> Channel:
        return Channel(
            self.directory / "channel",
            minimum_required_space=0,
            keep_alive=0,
            overflow_capacity=CAPACITY,
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

    def needed(self) -> set[int]:
        """Return the IDs that some group has yet to take: what counts against the capacity."""
        if not self.groups:
            return set(self.stored)
        return {i for g in self.groups.values() for i in g.queue + g.held}

    @rule(number=st.integers(0, 2), sizes=st.lists(st.integers(0, 300), max_size=9), commit=MOSTLY)
    def put(self, number: int, sizes: list[int], commit: bool) -> None:
        channel = self.handle(number)
        bodies = [b"%d:" % i + bytes(size) for i, size in enumerate(sizes)]
        tx = channel.put_transaction()
        tx.begin()
        tx.put_many(Event(b) for b in bodies)
        if not commit:
            tx.rollback()
            return
        fits = len(self.needed()) + len(bodies) <= CAPACITY
        try:
            tx.commit()
            assert fits or not bodies
        except ChannelFullError:
            assert not fits
            tx.rollback()
            return
        for body in bodies:
            i = len(self.stored) + 1
            self.stored[i] = body
            for group in self.groups.values():
                group.queue.append(i)

    @rule(number=st.integers(0, 2), name=st.sampled_from(GROUPS), limit=st.integers(1, 12))
    def take(self, number: int, name: str, limit: int) -> None:
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(sorted(self.needed()), handle=number)
            if len(self.groups) > 1:  # a new group starts at the first event that any other still needs
                first = min(self.needed(), default=len(self.stored) + 1)
                group.queue = list(range(first, len(self.stored) + 1))
        if group.transaction is None:
            channel = self.handle(self.owner(name, number))
            group.transaction = channel.take_transaction(name)
            group.transaction.begin()
        found = group.transaction.take_many(limit)
        expected, group.queue = group.queue[:limit], group.queue[limit:]
        assert [(e.write_order_id, e.body) for e in found] == [(i, self.stored[i]) for i in expected]
        group.held += expected

    def owner(self, name: str, number: int) -> int:
        """Return the number of the handle that owns the group, or ``number`` if none does."""
        for i, channel in enumerate(self.handles):
            if name in channel._consumers:
                return i
        return number

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
        group.transaction, group.held = None, []

    @precondition(lambda self: any(not g.transaction for g in self.groups.values()))
    @rule(data=st.data())
    def drop_group(self, data: st.DataObject) -> None:
        if len(self.groups) == 1:
            return  # the last group's events would go on counting: that has a test of its own
        name = data.draw(st.sampled_from(sorted(n for n, g in self.groups.items() if not g.transaction)))
        self.handle(self.owner(name, 0)).drop_group(name)
        del self.groups[name]

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 2))
    def checkpoint(self, number: int) -> None:
        self.handle(number).checkpoint()

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 2), checkpoint=st.booleans())
    def close_handle(self, number: int, checkpoint: bool) -> None:
        channel = self.handle(number)
        for name, group in self.groups.items():
            if group.transaction and name in channel._consumers:
                group.queue = group.held + group.queue
                group.transaction, group.held = None, []
        channel.close(checkpoint=checkpoint)
        self.handles.remove(channel)

    @rule()
    def reboot(self) -> None:
        """Close everything, lose the head, and start from the files."""
        while self.handles:
            self.close_handle(0, checkpoint=False)
        (self.directory / "channel" / "head").unlink(missing_ok=True)

    @precondition(lambda self: self.handles)
    @invariant()
    def every_handle_counts_the_same(self) -> None:
        for channel in self.handles:
            stats = channel.stats()
            assert stats.last_id == len(self.stored)
            assert stats.channel_size == len(self.needed())
            for name, group in self.groups.items():
                assert stats.groups[name].lag == len(group.queue) + len(group.held)

    def teardown(self) -> None:
        with self.open() as channel:
            while self.handles:
                self.close_handle(0, checkpoint=False)
            for name, group in self.groups.items():
                with channel.take_transaction(name) as tx:
                    assert [e.write_order_id for e in tx.take_many(10_000)] == group.queue
        shutil.rmtree(self.directory)


TestChannelMachine = ChannelMachine.TestCase
TestChannelMachine.settings = settings(max_examples=250, stateful_step_count=100)
