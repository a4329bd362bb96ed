"""An inspection of a channel in a store: the state that is left, and what a repair needs to know."""

from __future__ import annotations

import pytest

from spillable_stream.integrity.object_inspection import ObjectInspection, inspect_objects
from spillable_stream.objects.read_ahead import BehindError
from spillable_stream.objects.slots import slot_key
from tests.support.events import put, take
from tests.support.faulty_store import FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import collect_now
from tests.support.object_damage import DAMAGES, damage_object, fill_store, open_here


def tail_of(inspection: ObjectInspection) -> tuple[int, bool]:
    return inspection.last_number, inspection.tail is not None


def test_a_whole_channel_is_the_state_that_a_handle_knows(store: MemoryStore) -> None:
    fill_store()
    inspection = inspect_objects(store)
    with open_here(create=False) as channel:
        known = channel.engine().state
        assert inspection.state.small() == known.small()
        assert {(b.first_id, b.last_id, b.file) for b in inspection.state.blocks} == {
            (b.first_id, b.last_id, b.file) for b in known.blocks
        }
        assert inspection.tail == channel.engine().log.tail  # type: ignore[attr-defined]
    assert (inspection.holes, inspection.unrepairable, inspection.log_damaged) == ([], "", False)
    assert inspection.last_id == 30 and inspection.counts == inspection.tail.counts  # type: ignore[union-attr]


def test_the_state_that_is_left_has_only_events_that_can_be_read(store: MemoryStore) -> None:
    fill_store()
    damage_object(store, slot_key(3), DAMAGES["one byte of the rest"])
    inspection = inspect_objects(store)
    assert list(inspection.state.blocks.gaps(9, 30)) == [(11, 15)] == list(inspection.loss.lost)
    assert inspection.log_damaged and not inspection.state.lost


def test_a_tail_that_is_missing_or_damaged_proves_nothing(store: MemoryStore) -> None:
    fill_store()
    last = max(key for key in store.objects if key.startswith("log/"))
    number = int(last.removeprefix("log/"))
    assert tail_of(inspect_objects(store)) == (number, True)
    damage_object(store, last, DAMAGES["nonsense"])
    assert tail_of(inspect_objects(store)) == (number, False)


def test_damage_to_the_identity_alone_needs_no_new_slot(store: MemoryStore) -> None:
    fill_store()
    damage_object(store, "channel.json", DAMAGES["nonsense"])
    inspection = inspect_objects(store)
    assert inspection.inventory.identity_damaged and not inspection.log_damaged


def test_slots_that_are_collected_under_its_eyes_make_an_inspection_give_up(store: MemoryStore) -> None:
    with open_here(gc_delay=0) as channel:
        for i in range(4):
            put(channel, b"%d" % i)
        take(channel, 4)

        def collect(request: Request) -> None:
            if request.key == slot_key(4) and slot_key(0) in store.objects:
                collect_now(channel)
                collect_now(channel)

        with pytest.raises(BehindError):
            inspect_objects(FaultyStore(store, after=collect))
    assert not inspect_objects(store).log_damaged
