from __future__ import annotations

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.objects.checkpoints import Checkpoint, Checkpoints, Hint
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def writer(memory: MemoryStore) -> Writer:
    writer = Writer(memory, new_channel(memory))
    writer.put(b"0", b"1")
    return writer


def newest(writer: Writer) -> Checkpoint | None:
    return writer.checkpoints.newest_of(writer.checkpoints.numbers())


def key(number: int) -> str:
    return f"checkpoints/{number:020d}"


def test_what_is_written_is_read(writer: Writer) -> None:
    writer.checkpoints.write(writer.tail, writer.state)
    for found in (newest(writer), writer.checkpoints.at(1)):
        assert found is not None
        assert (found.tail, found.base) == (writer.tail, 1)
        assert found.state.image() == writer.state.image()


def test_a_checkpoint_that_is_there_is_as_good_as_ones_own(writer: Writer, memory: MemoryStore) -> None:
    writer.checkpoints.write(writer.tail, writer.state)
    before = memory.objects[key(1)]
    Writer(memory, writer.slots.channel).checkpoints.write(writer.tail, writer.state)
    assert memory.objects[key(1)] is before


def test_a_damaged_one_in_its_place_is_not_a_checkpoint(writer: Writer, memory: MemoryStore) -> None:
    memory.objects[key(1)] = b"damaged"
    with pytest.raises(StorageError, match="can't be read after it was written"):
        writer.checkpoints.write(writer.tail, writer.state)


def test_one_that_others_delete_for_they_have_later_ones_is_not_a_failure(writer: Writer, memory: MemoryStore) -> None:
    """Its writer was paused between its request and the look whether it can be read."""
    other = Writer(memory, writer.slots.channel)

    def deleted(request: Request) -> None:
        if request.kind == "create":
            other.put(b"2")
            other.checkpoints.write(other.tail, other.state)
            other.checkpoints.delete(1)

    paused = Checkpoints(FaultyStore(memory, after=deleted), writer.slots.channel)
    paused.write(writer.tail, writer.state)
    assert paused.numbers() == [2]


def test_one_that_another_channel_left_further_on_does_not_speak_for_one_that_cannot_be_read(
    writer: Writer, memory: MemoryStore
) -> None:
    """Slots would be trimmed up to a checkpoint with which nobody can begin."""
    memory.objects |= {key(1): b"another channel's", key(1000): b"another channel's"}
    with pytest.raises(
        StorageError, match=r"can't be read after it was written.*`spillable repair memory://\S+` moves it aside"
    ):
        writer.checkpoints.write(writer.tail, writer.state)


@pytest.mark.parametrize("is_own", [False, True])
def test_only_one_of_this_channel_is_taken_back(writer: Writer, memory: MemoryStore, is_own: bool) -> None:
    writer.checkpoints.write(writer.tail, writer.state)
    Checkpoints(memory, writer.slots.channel if is_own else "another").take_back(1)
    assert (key(1) in memory.objects) is not is_own


@pytest.mark.parametrize("at", [0, 10, 30, 46, 60, -1])
def test_a_flipped_bit_makes_it_none(writer: Writer, memory: MemoryStore, at: int) -> None:
    writer.checkpoints.write(writer.tail, writer.state)
    data = bytearray(memory.objects[key(1)])
    data += bytes(-len(data) % 8)
    if at == -1:
        data += bytes(8)
    else:
        data[at] ^= 1
    memory.objects[key(1)] = bytes(data)
    assert writer.checkpoints.at(1) is None
    assert newest(writer) is None


def test_one_of_another_slot_or_channel_is_none(writer: Writer, memory: MemoryStore) -> None:
    writer.checkpoints.write(writer.tail, writer.state)
    memory.objects[key(2)] = memory.objects[key(1)]
    assert writer.checkpoints.at(2) is None
    assert Checkpoints(memory, "another").at(1) is None
    found = newest(writer)
    assert found is not None and found.tail.number == 1


def test_only_names_of_20_digits_are_checkpoints(writer: Writer, memory: MemoryStore) -> None:
    names = "checkpoints/7", "checkpoints/²", f"checkpoints/{20 * '²'}", "checkpoints/copy", f"{key(3)}.old", key(5)
    memory.objects |= dict.fromkeys(names, b"")
    assert writer.checkpoints.numbers() == [5]


def test_the_hint_is_what_was_written_last(writer: Writer) -> None:
    assert writer.checkpoints.hint() is None
    for number in (1, 7):
        writer.checkpoints.write_hint(Hint(number, number - 1))
    assert writer.checkpoints.hint() == Hint(7, 6)


def test_a_store_that_fails_is_not_taken_for_a_missing_checkpoint(writer: Writer, memory: MemoryStore) -> None:
    writer.checkpoints.write(writer.tail, writer.state)
    failing = Checkpoints(FaultyStore(memory, lambda _: Fault.UNAVAILABLE), writer.slots.channel)
    for look in (failing.numbers, failing.hint, lambda: failing.at(1)):
        with pytest.raises(StorageError):
            look()
