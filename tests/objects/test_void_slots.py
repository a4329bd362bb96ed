"""Which slots are void, and who passes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillable_stream.errors import CommitOutcomeUnknownError, DataLossError
from spillable_stream.format.slot import TOKEN_BYTES
from spillable_stream.objects.loading import load
from spillable_stream.objects.read_ahead import BehindError, require_there
from spillable_stream.objects.slots import Slots, slot_key
from spillable_stream.objects.store import StoreError
from spillable_stream.objects.void_slots import declare_void, is_void, void_key, void_slots, withdraw_void
from tests.support.faulty_store import Fault, FaultyStore, once
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel

TOKEN = bytes(range(TOKEN_BYTES))


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def channel(memory: MemoryStore) -> str:
    return new_channel(memory)


def slot_behind_lost_ones(memory: MemoryStore, channel: str, lost: int = 1) -> tuple[int, bytes]:
    """Lose slots behind slot 1, create one behind them, and return its number and its token."""
    writer = Writer(memory, channel)
    writer.put(b"first")
    kept = dict(memory.objects)
    for _ in range(lost):
        writer.put(b"lost")
    late = writer.attempt(b"behind the lost ones")
    writer.appending.append(late)
    memory.objects.clear()
    memory.objects.update(kept | {slot_key(late.number): late.data})
    return late.number, late.token


def test_the_keys_of_a_listing_say_which_slots_are_void() -> None:
    key = void_key(11, TOKEN)
    assert key == f"log/{11:020d}.void.{TOKEN.hex()}"
    others = [
        slot_key(11),
        f"log/11.void.{TOKEN.hex()}",
        f"log/².void.{TOKEN.hex()}",
        f"log/{11:020d}.void.",
        f"log/{11:020d}.void.{TOKEN.hex()[:-1]}",
        f"log/{11:020d}.void.{TOKEN.hex()[:-1]}g",
        f"log/{11:020d}.void.{TOKEN.hex().upper()}",
        f"other/{key}",
        f"{key}.void.{TOKEN.hex()}",
    ]
    assert void_slots([key, *others]) == {(11, TOKEN)}


def test_a_slot_is_void_if_its_own_token_is_named(memory: MemoryStore, channel: str) -> None:
    slots = Writer(memory, channel).slots
    declare_void(slots, 11, TOKEN)
    assert is_void(slots, 11, TOKEN)
    assert not is_void(slots, 12, TOKEN)
    assert not is_void(slots, 11, TOKEN[::-1])
    withdraw_void(slots, 11, TOKEN)
    assert not is_void(slots, 11, TOKEN)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_whoever_comes_to_a_void_slot_passes_it_and_appends_behind_it(
    memory: MemoryStore, channel: str, lost: int
) -> None:
    number, token = slot_behind_lost_ones(memory, channel, lost)
    declare_void(Slots(memory, channel), number, token)
    writer, follower = Writer(memory, channel), Writer(memory, channel)
    for i in range(lost):
        writer.put(b"%d" % i)
    assert (writer.tail.number, writer.tail.token) == (number, token), "the append came to it, and passed it"
    behind = writer.put(b"behind it")
    assert behind.number == number + 1
    follower.follow()
    assert follower.tail == writer.tail == Writer(memory, channel).tail
    assert follower.state.image() == writer.state.image() == Writer(memory, channel).state.image()
    assert follower.state.last_id == lost + 2


def test_a_proof_behind_a_void_slot_needs_the_slot_that_counts_too(memory: MemoryStore, channel: str) -> None:
    """The bucket was put back once more, to when there was a void slot behind lost ones."""
    declare_void(Slots(memory, channel), *slot_behind_lost_ones(memory, channel))
    before = dict(memory.objects)
    writer = Writer(memory, channel)
    counts = writer.put(b"counts")
    memory.objects.clear()
    memory.objects.update(before)
    attempt = writer.attempt(b"behind what is lost")
    with pytest.raises(CommitOutcomeUnknownError, match=f"slot {counts.number}, on which it was planned"):
        writer.appending.append(attempt)
    with pytest.raises(BehindError):
        require_there(writer.slots, writer.tail)


def test_a_checkpoint_behind_a_void_slot_is_that_of_the_last_one_that_counts(memory: MemoryStore, channel: str) -> None:
    declare_void(Slots(memory, channel), *slot_behind_lost_ones(memory, channel))
    writer = Writer(memory, channel)
    writer.put(b"0")
    writer.checkpoints.write(writer.tail.counting, writer.state)
    loaded = load(writer.slots, writer.checkpoints)
    assert (loaded.base, loaded.tail) == (writer.tail.number - 1, writer.tail)
    Writer(memory, channel).put(b"1")
    writer.follow()
    assert writer.state.last_id == 3


def test_what_was_planned_on_a_void_slot_is_refused(memory: MemoryStore, channel: str) -> None:
    """Its writer saw the lost slot behind it in time. It may have acknowledged something."""
    number, token = slot_behind_lost_ones(memory, channel, 2)
    writer = Writer(memory, channel)
    writer.tail = replace(writer.tail, number=number, token=token, counts=token)
    assert writer.appending.append(writer.attempt(b"acknowledged")) is None
    declare_void(writer.slots, number, token)
    other = Writer(memory, channel)
    other.put(b"in the hole")
    with pytest.raises(DataLossError, match=f"slot {number - 1} is missing, and slot {number + 1} is there"):
        Writer(memory, channel)
    with pytest.raises(DataLossError, match=f"slot {number + 1} was appended after a slot {number}"):
        other.put(b"in the hole")


def test_an_open_that_misses_a_slot_looks_past_void_ones_behind_it_and_says_what_is_lost(
    memory: MemoryStore, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    number, token = slot_behind_lost_ones(memory, channel)
    slots = Slots(memory, channel)
    declare_void(slots, number, token)
    assert Writer(memory, channel).tail.number == number - 2
    assert "which knew the events up to 2, found that slots before it were lost: the event 2. If" in caplog.text
    memory.objects[slot_key(number + 1)] = b"damaged"
    with pytest.raises(DataLossError, match=f"slot {number - 1} is missing, and slot {number + 1} is there"):
        Writer(memory, channel)


def test_a_slot_that_was_planned_on_the_one_before_it_counts_whatever_is_said(
    memory: MemoryStore, channel: str
) -> None:
    """The bucket was put forward again. Nobody asks then."""
    writer = Writer(memory, channel)
    attempt = writer.put(b"counts")
    declare_void(writer.slots, attempt.number, attempt.token)
    store = FaultyStore(memory)
    assert Writer(store, channel).state.last_id == 1
    assert void_key(attempt.number, attempt.token) not in [request.key for request in store.requests]


def test_where_the_store_does_not_say_whether_a_slot_is_void_nobody_passes_it(
    memory: MemoryStore, channel: str
) -> None:
    number, token = slot_behind_lost_ones(memory, channel)
    slots = Slots(memory, channel)
    declare_void(slots, number, token)
    store = FaultyStore(memory, once("get", Fault.UNAVAILABLE, void_key(number, token)))
    with pytest.raises(StoreError):
        is_void(Slots(store, channel), number, token)
    assert is_void(Slots(store, channel), number, token)
