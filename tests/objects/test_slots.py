from __future__ import annotations

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.objects.slots import Slots, number_in, slot_key
from tests.support.faulty_store import Fault, FaultyStore, once
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def writer(memory: MemoryStore) -> Writer:
    """A writer of a log of the slots 0 to 3."""
    writer = Writer(memory, new_channel(memory))
    for number in range(1, 4):
        writer.put(b"%d" % number)
    return writer


@pytest.fixture
def store(memory: MemoryStore) -> FaultyStore:
    return FaultyStore(memory)


@pytest.fixture
def slots(writer: Writer, store: FaultyStore) -> Slots:
    return Slots(store, writer.slots.channel)


def test_keys_have_20_digits_so_that_their_order_is_that_of_the_slots() -> None:
    assert slot_key(7) == "log/00000000000000000007"
    assert len(slot_key(2**63 - 1)) == len(slot_key(0))


@pytest.mark.parametrize("name", ["7", "²", 20 * "²", f"{7:021d}", f"{7:020d}.void", f"-{7:019d}", f"{7:020d}\n", ""])
def test_only_20_digits_are_the_number_of_an_object(name: str) -> None:
    assert number_in(f"log/{name}", "log/") is None
    assert number_in(slot_key(7), "log/") == 7 and number_in(slot_key(7), "checkpoints/") is None


def test_a_slot_is_created_once(slots: Slots, memory: MemoryStore) -> None:
    assert slots.create(4, b"first")
    assert not slots.create(4, b"second")
    assert memory.objects[slot_key(4)] == b"first"


def test_what_is_not_there_is_none(slots: Slots) -> None:
    assert (slots.read(4), slots.token(4)) == (None, None)


def test_what_was_cut_short_on_the_way_is_read_again(slots: Slots, store: FaultyStore) -> None:
    store.schedule = once("get", Fault.SHORT)
    found = slots.read(2)
    assert found is not None and found.number == 2
    assert store.counts["get"] == 2


def test_what_is_damaged_twice_is_named_with_its_place(slots: Slots, store: FaultyStore, memory: MemoryStore) -> None:
    memory.objects[slot_key(2)] = memory.objects[slot_key(1)]
    for look in (slots.read, slots.token):
        with pytest.raises(CorruptionError, match="another") as caught:
            look(2)
        assert (caught.value.path, caught.value.offset) == (f"{memory.root}/{slot_key(2)}", 0)
    assert store.counts["get"] == 3


def test_a_token_is_read_with_the_header_alone(slots: Slots, writer: Writer, store: FaultyStore) -> None:
    assert slots.token(3) == writer.tail.token
    assert store.counts == {"get_range": 1}


def test_the_token_of_slot_0_is_read_with_one_request_though_its_state_is_large(
    slots: Slots, writer: Writer, store: FaultyStore
) -> None:
    first = slots.read(0)
    assert first is not None and first.end > 512
    store.forget_counts()
    assert slots.token(0) == first.header.token
    assert store.counts == {"get": 1}


def test_a_header_that_was_damaged_on_the_way_is_read_again(slots: Slots, writer: Writer, store: FaultyStore) -> None:
    store.get_range = lambda key, start, end: b"cut short"  # type: ignore[method-assign]
    assert slots.token(3) == writer.tail.token
    assert store.counts == {"get": 1}


def test_a_slot_that_is_gone_is_deleted_once_more_without_an_error(slots: Slots, memory: MemoryStore) -> None:
    slots.delete(1)
    slots.delete(1)
    assert slot_key(1) not in memory.objects
