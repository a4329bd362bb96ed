"""An append behind a slot that is lost is taken back; one behind a slot that was collected may count, and stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream.errors import CommitOutcomeUnknownError
from spillable_stream.objects.appending import Attempt
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.withdrawal import withdraw
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def writer(memory: MemoryStore) -> Writer:
    return Writer(memory, new_channel(memory))


def unproven(writer: Writer) -> Attempt:
    """Return an append whose slot is there, and whose proof failed: the slot before it is gone."""
    attempt = writer.attempt(b"unproven")
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        writer.appending.append(attempt)
    assert caught.value.is_lasting
    return attempt


def put_back(writer: Writer, memory: MemoryStore, events: int) -> None:
    writer.put(b"0")
    with memory.put_back():
        for _ in range(events):
            writer.put(b"lost")


def withdrawn(writer: Writer, attempt: Attempt) -> str:
    """Withdraw an append, and return what the error says; "" if there is none."""
    error = withdraw(writer.slots, writer.checkpoints, attempt)
    return "" if error is None else str(error)


@pytest.mark.parametrize("events", [1, 2, 5])
def test_an_append_behind_a_slot_that_is_lost_is_deleted_and_the_error_is_of_the_loss(
    writer: Writer, memory: MemoryStore, events: int
) -> None:
    put_back(writer, memory, events)
    before = dict(memory.objects)
    attempt = unproven(writer)
    assert memory.objects != before
    error = withdraw(writer.slots, writer.checkpoints, attempt)
    assert error is not None
    assert f"ends with slot 1, and slot {1 + events} was there: the bucket was put back" in str(error)
    assert memory.objects == before


def test_a_fence_is_deleted_too(writer: Writer, memory: MemoryStore) -> None:
    put_back(writer, memory, 2)
    before, attempt = dict(memory.objects), writer.attempt(b"not sent")
    with pytest.raises(CommitOutcomeUnknownError):
        writer.appending.settle(attempt)
    assert set(memory.objects) - set(before) == {slot_key(4)}
    assert withdrawn(writer, attempt)
    assert memory.objects == before


def collect(writer: Writer, memory: MemoryStore, through: int) -> None:
    """Delete slots as a collector does, behind a checkpoint."""
    writer.checkpoints.write(writer.tail, writer.state)
    for number in range(through + 1):
        del memory.objects[slot_key(number)]


@pytest.mark.parametrize("newer", [0, 1, 3])
def test_an_append_behind_a_slot_that_was_collected_stays(writer: Writer, memory: MemoryStore, newer: int) -> None:
    """The writer was paused before its proof; others read the slot meanwhile, and it is the first that is left."""
    other = Writer(memory, writer.slots.channel)
    writer.put(b"0")
    attempt = writer.attempt(b"1")
    assert writer.slots.create(attempt.number, attempt.for_request())
    other.follow()
    for _ in range(newer):
        other.put(b"x")
    collect(other, memory, attempt.number - 1)
    before = dict(memory.objects)
    assert withdrawn(writer, attempt) == ""
    assert memory.objects == before


def test_an_append_that_counted_for_somebody_stays(writer: Writer, memory: MemoryStore) -> None:
    """Somebody removed the slot before it, and nothing else."""
    writer.put(b"0")
    attempt = writer.attempt(b"1")
    assert writer.slots.create(attempt.number, attempt.for_request())
    other = Writer(memory, writer.slots.channel)
    other.put(b"2")
    del memory.objects[slot_key(1)]
    before = dict(memory.objects)
    assert withdrawn(writer, attempt) == ""
    assert memory.objects == before


@pytest.mark.parametrize(
    "replaced", [lambda objects: objects.pop(slot_key(3)), lambda objects: objects.update({slot_key(3): b"damaged"})]
)
def test_what_is_not_the_appends_slot_any_more_stays(
    writer: Writer, memory: MemoryStore, replaced: Callable[[dict[str, bytes]], object]
) -> None:
    put_back(writer, memory, 1)
    attempt = unproven(writer)
    replaced(memory.objects)
    before = dict(memory.objects)
    assert withdrawn(writer, attempt) == ""
    assert memory.objects == before


@pytest.mark.parametrize("kind", ["get", "get_range", "delete"])
def test_where_the_store_does_not_answer_the_outcome_stays_unknown(
    writer: Writer, memory: MemoryStore, kind: str
) -> None:
    put_back(writer, memory, 2)
    attempt = unproven(writer)
    before = dict(memory.objects)
    writer.slots.store = FaultyStore(memory, lambda request: Fault.REFUSED if request.kind == kind else None)
    assert withdrawn(writer, attempt) == ""
    assert memory.objects == before
