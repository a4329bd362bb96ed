"""When a channel was last seen to be where it is, and what becomes of a slot that was left where it is no more."""

from __future__ import annotations

from itertools import chain

import pytest

from spillable_stream.engine.store import channel_presence
from spillable_stream.engine.store.channel_presence import ChannelPresence
from spillable_stream.errors import NotAChannelError
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import Slots, slot_key
from spillable_stream.objects.store import StoreError
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import FakeTime, Writer, new_channel

LOCATION = Location("s3", "bucket", "orders")


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(channel_presence, "time", clock)
    return clock


@pytest.fixture
def writer(memory: MemoryStore) -> Writer:
    writer = Writer(memory, new_channel(memory))
    writer.put(b"first")
    return writer


def presence_of(writer: Writer, store: FaultyStore | None = None, *, is_proven: bool = True) -> ChannelPresence:
    slots = writer.slots if store is None else Slots(store, writer.slots.channel)
    return ChannelPresence(slots, LOCATION, is_proven=is_proven)


def test_what_was_seen_lately_counts_as_there_for_as_long_as_it_was_told_to(writer: Writer, clock: FakeTime) -> None:
    presence = presence_of(writer)
    assert not presence.is_fresh(), "it was never seen"
    presence.keep_fresh_for(60)
    presence.saw(clock.now)
    clock.now += 59
    assert presence.is_fresh()
    clock.now += 2
    assert not presence.is_fresh()
    presence.saw(clock.now)
    presence.is_proven = False
    assert not presence.is_fresh(), "something speaks against it"


def test_the_store_is_asked_once_whether_the_channel_is_there(writer: Writer, memory: MemoryStore) -> None:
    store = FaultyStore(memory)
    presence = presence_of(writer, store, is_proven=False)
    for _ in range(2):
        presence.require()
    assert store.counts == {"get": 1}


@pytest.mark.parametrize("another", [False, True], ids=["nothing is there", "another one is there"])
def test_a_channel_that_was_removed_is_named_and_the_slot_that_was_left_there_is_deleted(
    writer: Writer, memory: MemoryStore, another: bool
) -> None:
    attempt = writer.attempt(b"left")
    memory.objects.clear()
    if another:
        new_channel(memory)
    memory.create(slot_key(attempt.number), attempt.for_request())
    with pytest.raises(NotAChannelError, match=f"{writer.slots.channel} is no longer at s3://bucket/orders"):
        presence_of(writer).require_after(attempt.number)
    assert slot_key(attempt.number) not in memory.objects
    assert bool(memory.objects) is another


def test_a_listing_that_shows_what_was_left_twice_is_understood(
    writer: Writer, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, listed = writer.attempt(b"left"), memory.list
    memory.objects.clear()
    memory.create(slot_key(attempt.number), attempt.for_request())
    monkeypatch.setattr(memory, "list", lambda prefix: chain(listed(prefix), listed(prefix)))
    with pytest.raises(NotAChannelError):
        presence_of(writer).require_after(attempt.number)
    assert memory.objects == {}


@pytest.mark.parametrize("kind", ["list", "delete"])
def test_a_store_that_does_not_delete_what_was_left_hides_no_channel_that_was_removed(
    writer: Writer, memory: MemoryStore, kind: str
) -> None:
    attempt = writer.attempt(b"left")
    memory.objects.clear()
    memory.create(slot_key(attempt.number), attempt.for_request())
    store = FaultyStore(memory, lambda request: Fault.UNAVAILABLE if request.kind == kind else None)
    with pytest.raises(NotAChannelError, match="no longer at s3://bucket/orders"):
        presence_of(writer, store).require_after(attempt.number)


def test_another_channels_slot_is_left_alone(writer: Writer, memory: MemoryStore) -> None:
    memory.objects.clear()
    other = Writer(memory, new_channel(memory))
    other.put(b"theirs")
    with pytest.raises(NotAChannelError):
        presence_of(writer).require_after(1)
    assert slot_key(1) in memory.objects


def test_a_slot_that_another_channel_creates_in_the_place_of_what_was_left_there_stays(
    writer: Writer, memory: MemoryStore
) -> None:
    """Another handle of the removed channel came to it, too, and deleted it first."""
    left = writer.attempt(b"left")
    memory.objects.clear()
    other = Writer(memory, new_channel(memory))
    other.put(b"theirs")
    memory.create(slot_key(left.number), left.for_request())

    def overtaken(request: Request) -> None:
        if request.key == IDENTITY and store.counts["get"] > 1:
            memory.delete(slot_key(left.number))
            other.put(b"theirs")

    store = FaultyStore(memory, after=overtaken)
    with pytest.raises(NotAChannelError):
        presence_of(writer, store).require_after(left.number)
    other.put(b"behind it")
    assert other.state.last_id == 3


def test_a_channel_that_lost_its_identity_alone_loses_no_slot(writer: Writer, memory: MemoryStore) -> None:
    del memory.objects[IDENTITY]
    with pytest.raises(NotAChannelError):
        presence_of(writer).require_after(1)
    assert slot_key(1) in memory.objects


def test_where_nobody_answers_the_appends_own_error_is_told(writer: Writer, memory: MemoryStore) -> None:
    store = FaultyStore(memory, lambda _: Fault.UNAVAILABLE)
    presence = presence_of(writer, store)
    presence.require_after(1)
    with pytest.raises(StoreError):
        presence.require()
    assert slot_key(1) in memory.objects
