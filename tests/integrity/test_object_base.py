"""A replay begins with the oldest state after which every slot should be there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.requests import Control
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import TrimRecord
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.object_base import Base, find_base
from spillable_stream.integrity.object_inventory import take_object_inventory
from spillable_stream.objects.checkpoints import checkpoint_key
from spillable_stream.objects.slots import Slots, slot_key
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel


@pytest.fixture
def store() -> MemoryStore:
    """Create a channel of eight slots, with checkpoints of slots 2, 4 and 6."""
    store = MemoryStore()
    writer = Writer(store, new_channel(store))
    for number in range(1, 9):
        writer.put(b"%d" % number)
        if number in (2, 4, 6):
            writer.checkpoints.write(writer.tail, writer.state)
    return store


def found(store: MemoryStore) -> tuple[Base, Findings]:
    findings = Findings()
    inventory = take_object_inventory(store, Findings())
    return find_base(Slots(store, inventory.channel), inventory, findings), findings


def remove(store: MemoryStore, keys: Iterable[str]) -> None:
    for key in keys:
        del store.objects[key]


def trim(store: MemoryStore, through: int) -> None:
    """Append a trim, and create the checkpoint of its slot."""
    writer = Writer(store, take_object_inventory(store, Findings()).channel)
    plan = AppendPlan(writer.state, Tier.DISK, start=writer.appending.begin_bytes(writer.tail))
    Control(FrameType.TRIM, TrimRecord(through=through, births=0, deleted=-1)).plan(plan)
    assert writer.appending.append(writer.appending.attempt(writer.tail, plan.entries)) is None
    writer.follow()
    writer.checkpoints.write(writer.tail, writer.state)


def test_a_channel_that_was_never_trimmed_is_replayed_from_its_first_slot(store: MemoryStore) -> None:
    base, findings = found(store)
    assert (base.number, base.is_proven, base.missing, findings.all()) == (0, True, {}, ())
    assert base.state.next_id == 1


@pytest.mark.parametrize("damage", [None, b"nonsense"])
def test_without_slot_0_the_oldest_checkpoint_is_the_base_and_that_is_said(store: MemoryStore, damage: object) -> None:
    if damage is None:
        del store.objects[slot_key(0)]
    else:
        store.objects[slot_key(0)] = damage  # type: ignore[assignment]
    base, _ = found(store)
    assert (base.number, list(base.missing), base.state.next_id) == (2, [0], 3)
    assert str(base.missing[0].path) == slot_key(0)


def test_a_checkpoint_whose_slot_is_not_there_is_no_base(store: MemoryStore) -> None:
    remove(store, [slot_key(0), slot_key(2)])
    store.objects[slot_key(4)] = b"nonsense"
    base, _ = found(store)
    assert (base.number, list(base.missing), base.is_proven) == (6, [0, 2, 4], True)
    store.objects[slot_key(6)] = store.objects[slot_key(5)]
    base, _ = found(store)
    assert (base.number, list(base.missing), base.is_proven) == (6, [0, 2, 4, 6], False)


def test_what_was_trimmed_is_not_asked_for(store: MemoryStore) -> None:
    trim(store, 5)
    remove(store, map(slot_key, range(6)))
    base, findings = found(store)
    assert (base.number, base.missing, findings.all()) == (6, {}, ())


def test_damaged_checkpoints_are_warnings_while_something_else_is_whole(store: MemoryStore) -> None:
    for number in (2, 4, 6):
        store.objects[checkpoint_key(number)] = b"nonsense"
    base, findings = found(store)
    assert base.number == 0 and [f.severity for f in findings.all()] == ["warning"] * 3


def test_without_any_state_the_slots_say_what_an_event_channel_is_if_all_are_there(store: MemoryStore) -> None:
    for number in (2, 4, 6):
        store.objects[checkpoint_key(number)] = b"nonsense"
    del store.objects[slot_key(0)]
    base, findings = found(store)
    assert (base.number, base.tail, base.unrepairable, list(base.missing)) == (0, None, "", [0])
    assert [f.severity for f in findings.all()] == ["damage"] * 3
    del store.objects[slot_key(1)]
    base, _ = found(store)
    assert base.number == 1 and "the slots before 2 were deleted" in base.unrepairable
