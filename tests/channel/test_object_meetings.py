"""Whole operations of other handles at any request of one, as if its process were paused there, beside what must hold.

Slots are collected as soon as nobody needs them, so each pause may be one that is longer than `gcDelay`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from random import Random

import pytest

from spillable_stream import (
    Channel,
    ChannelBusyError,
    CommitOutcomeUnknownError,
    DataLossError,
    Event,
    GroupOwnedError,
)
from spillable_stream.engine.store.object_ownership import ObjectOwnership
from spillable_stream.objects.appending import Appending
from spillable_stream.objects.store import Store
from tests.channel.test_object_machine import OPTIONS
from tests.lab.size import sized
from tests.support.faulty_store import FaultyStore, Request
from tests.support.object_channels import URL, stores_in_memory
from tests.support.store_limits import AT_ONCE, set_limits

STEPS = 30
MOST_HANDLES = 4
DEEPEST = 3  # operations, each within a request of the one before
MOST_MEETINGS = 12  # in one step
GROUPS = ["a", "b"]


class Meetings:
    """Handles of one channel in one thread.

    Args:
        seed: chooses who does what, and at which requests of whom.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.share = self.random.choice([0.02, 0.08, 0.2])
        self.handles: list[Channel] = []
        self.busy: list[Channel | None] = []  # the operations that are under way, the outermost first
        self.left = 0
        self.bodies = 0
        self.put: dict[bytes, int] = {}  # what was acknowledged, with its ID
        self.maybe_put: set[bytes] = set()
        self.taken: dict[str, list[int]] = {name: [] for name in GROUPS}
        self.maybe_taken: dict[str, set[int]] = {name: set() for name in GROUPS}

    def seen_by(self, store: Store) -> FaultyStore:
        """Return the store as a handle sees it: before and behind each request others may do something."""
        return FaultyStore(store, self.meet, after=self.meet)

    def meet(self, request: Request) -> None:
        if threading.current_thread() is not threading.main_thread() or not 0 < len(self.busy) < DEEPEST:
            return
        while self.left and self.random.random() < self.share:
            self.left -= 1
            Context().run(self.step)

    def step(self) -> None:
        free = [channel for channel in self.handles if channel not in self.busy]
        if not free or (len(self.handles) < MOST_HANDLES and self.random.random() < 0.15):
            self.do(None, self.open)
            return
        channel = self.random.choice(free)
        operation = self.random.choice([self.puts, self.puts, self.takes, self.takes, Channel.checkpoint, self.close])
        self.do(channel, lambda: operation(channel))

    def do(self, channel: Channel | None, operation: Callable[[], object]) -> None:
        self.busy.append(channel)
        try:
            operation()
        except ChannelBusyError:  # the others collect faster than it can read
            pass
        finally:
            self.busy.pop()

    def open(self) -> None:
        self.handles.append(Channel(URL, **OPTIONS))

    def close(self, channel: Channel) -> None:
        self.handles.remove(channel)
        channel.close(checkpoint=self.random.random() < 0.5)

    def puts(self, channel: Channel) -> None:
        self.bodies += 1
        bodies = [b"%d %d" % (self.bodies, i) + bytes(self.random.choice([0, 0, 900])) for i in range(3)]
        try:
            with channel.put_transaction() as tx:
                tx.put_many([Event(body) for body in bodies])
        except CommitOutcomeUnknownError:
            self.maybe_put.update(bodies)
            return
        assert tx.committed.first_id is not None
        self.put.update(zip(bodies, range(tx.committed.first_id, tx.committed.last_id + 1), strict=True))

    def takes(self, channel: Channel) -> None:
        group, events = self.random.choice(GROUPS), list[Event]()
        tx = channel.take_transaction(group)
        tx.begin()
        try:
            events = tx.take_many(self.random.randint(1, 9))
            tx.commit()
            self.taken[group] += [event.write_order_id for event in events]
        except CommitOutcomeUnknownError:
            self.maybe_taken[group].update(event.write_order_id for event in events)
        except GroupOwnedError:
            with suppress(GroupOwnedError):
                tx.rollback()

    def check(self) -> None:
        """Compare what is there with what was acknowledged."""
        self.left = 0
        for channel in list(self.handles):
            self.close(channel)
        with Channel(URL, **OPTIONS) as channel:
            last_id = channel.stats().last_id
            for group in GROUPS:
                with channel.take_transaction(group) as tx:
                    left = {event.write_order_id: event.body for event in tx.take_many(10_000)}
                known = {i: body for body, i in self.put.items()}
                taken, maybe = self.taken[group], self.maybe_taken[group]
                assert len(set(taken)) == len(taken), "an event was taken twice"
                assert not left.keys() & set(taken), "a committed take came back"
                assert left.keys() | set(taken) | maybe == set(range(1, last_id + 1)), "an event is lost"
                for i, body in left.items():
                    assert known.get(i, body) == body and (i in known or body in self.maybe_put)
        assert set(self.put.values()) <= set(range(1, last_id + 1))
        assert last_id <= len(self.put) + len(self.maybe_put)


def play(seed: int) -> None:
    meetings = Meetings(seed)
    with stores_in_memory(meetings.seen_by), pytest.MonkeyPatch.context() as patch:
        set_limits(patch, **AT_ONCE)
        meetings.open()
        for group in GROUPS:
            meetings.handles[0].port().create_group(group, "earliest")
        for _ in range(STEPS):
            meetings.left = MOST_MEETINGS
            meetings.step()
        meetings.check()


@pytest.mark.parametrize("seed", range(6))
def test_whoever_is_paused_at_any_request_loses_nothing_and_takes_nothing_twice(seed: int) -> None:
    play(seed)


@pytest.mark.crash
def test_whoever_is_paused_loses_nothing_in_hundreds_of_histories() -> None:
    for seed in range(6, 6 + sized(ci=24, full=2_000)):
        play(seed)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "proof"), [(Appending, "_prove"), (ObjectOwnership, "require")])
def test_a_handle_that_believes_what_it_knew_before_a_pause_is_found(
    kind: type, proof: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, proof, lambda *_: None)
    with pytest.raises((AssertionError, DataLossError)):
        for seed in range(40):
            play(seed)
