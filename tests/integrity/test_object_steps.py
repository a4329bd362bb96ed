"""The slots of a damaged log, in order: what counts of them, what is damaged, and where some are missing."""

from __future__ import annotations

import pytest

from spillable_stream.format.slot import SlotHeader
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.log_steps import ExactImage, MissingFiles
from spillable_stream.integrity.object_inventory import take_object_inventory
from spillable_stream.integrity.object_steps import ObjectSteps
from spillable_stream.log.frames import Damage, LocatedFrame
from spillable_stream.log.wal import Position
from spillable_stream.objects.appending import Tail, new_token
from spillable_stream.objects.slots import Slots, slot_key
from tests.support.memory_store import MemoryStore
from tests.support.object_damage import flip_at
from tests.support.object_logs import Writer, new_channel


class Read:
    """What was read of a store's slots after slot 0."""

    def __init__(self, store: MemoryStore) -> None:
        self.findings = Findings()
        inventory = take_object_inventory(store, Findings())
        first = Slots(store, inventory.channel).read(0)
        assert first is not None
        self.steps = ObjectSteps(store, inventory, self.findings, Tail.of(first), 0, ["g"])
        self.told = [f"{step.file.file_id} {_told(step.what)}" for step in self.steps.since(Position(0, 0))]
        self.said = [f"{f.severity} {f.path.name.lstrip('0')}: {f.text}" for f in self.findings.all()]


def _told(what: LocatedFrame | Damage | ExactImage | MissingFiles) -> str:
    if isinstance(what, LocatedFrame):
        return what.header.type.name
    return {Damage: "damage", ExactImage: "image", MissingFiles: "missing"}[type(what)]


@pytest.fixture
def store() -> MemoryStore:
    """Create a channel of four puts, with a checkpoint of the second one."""
    store = MemoryStore()
    writer = Writer(store, new_channel(store))
    for number in range(1, 5):
        writer.put(b"%d" % number)
        if number == 2:
            writer.checkpoints.write(writer.tail, writer.state)
    return store


def writer_of(store: MemoryStore) -> Writer:
    return Writer(store, take_object_inventory(store, Findings()).channel)


def fence(store: MemoryStore, number: int, previous: bytes) -> None:
    """Put a slot without an append somewhere."""
    channel = take_object_inventory(store, Findings()).channel
    header = SlotHeader(channel, number, previous, new_token(), "a test")
    store.objects[slot_key(number)] = b"".join(header.encode())


def test_a_whole_log_is_its_frames_and_its_checkpoints(store: MemoryStore) -> None:
    read = Read(store)
    assert read.told == [
        "1 PUT",
        "1 COMMIT",
        "2 PUT",
        "2 COMMIT",
        "2 image",
        "3 PUT",
        "3 COMMIT",
        "4 PUT",
        "4 COMMIT",
    ]
    tail = writer_of(store).tail
    assert (read.steps.last_number, read.steps.token, read.steps.counts, read.steps.last_end) == (
        4,
        tail.token,
        tail.counts,
        tail.end,
    )
    assert (read.said, read.steps.holes, read.steps.hides_ids, read.steps.frames) == ([], [], False, 8)
    assert (read.steps.owned_groups, read.steps.last_id, read.steps.walked) == (["g"], None, {1, 2, 3, 4})


def test_missing_slots_are_one_hole_and_what_follows_it_counts(store: MemoryStore) -> None:
    del store.objects[slot_key(1)], store.objects[slot_key(2)]
    read = Read(store)
    assert read.told == ["1 missing", "2 image", "3 PUT", "3 COMMIT", "4 PUT", "4 COMMIT"]
    assert (read.said, read.steps.holes) == (["damage 2: slot 2 is missing"], [1])


def test_a_damaged_header_hides_nothing_that_follows_it(store: MemoryStore) -> None:
    for offset in (20, 60):  # in the header of its frame, and in its payload
        whole = store.objects[slot_key(3)]
        store.objects[slot_key(3)] = flip_at(whole, offset)
        read = Read(store)
        assert "3 damage" not in read.told and "3 COMMIT" in read.told and "4 COMMIT" in read.told
        assert read.said == ["damage 3: the file's header is damaged"] and not read.steps.hides_ids
        store.objects[slot_key(3)] = whole


@pytest.mark.parametrize("data", [b"", b"nonsense"])
def test_a_newest_slot_that_cannot_be_read_leaves_open_what_counts_and_which_ids_it_had(
    store: MemoryStore, data: bytes
) -> None:
    store.objects[slot_key(4)] = data
    read = Read(store)
    assert read.told[-1] == ("4 damage" if data else "4 missing")
    assert (read.steps.token, read.steps.counts, read.steps.hides_ids) == (None, None, True)


def test_a_put_behind_damage_says_the_ids(store: MemoryStore) -> None:
    store.objects[slot_key(3)] = b"nonsense"
    assert not Read(store).steps.hides_ids


def test_a_slot_that_is_cut_between_two_frames_is_damaged_up_to_the_size_that_its_header_says(
    store: MemoryStore,
) -> None:
    whole = store.objects[slot_key(4)]
    (put,) = [f for f in writer_of(store).slots.read(4).frames() if f.payload is None]  # type: ignore[union-attr]
    store.objects[slot_key(4)] = whole[: put.offset]
    read = Read(store)
    assert read.told[-1] == "4 damage" and read.steps.hides_ids


def test_a_slot_that_was_appended_behind_another_one_is_damage_before_it_and_has_its_frames(store: MemoryStore) -> None:
    replaced = writer_of(store).slots.read(4)
    assert replaced is not None
    fence(store, 4, replaced.header.previous)
    fence(store, 5, replaced.header.token)
    read = Read(store)
    assert read.told[-1] == "5 missing" and read.steps.last_number == 5
    assert read.steps.token == read.steps.counts is not None
    assert "4 PUT" not in read.told


def test_a_damaged_slot_that_was_appended_behind_another_one_has_what_can_be_read_of_it(store: MemoryStore) -> None:
    writer = writer_of(store)
    replaced = writer.slots.read(4)
    writer.put(b"5")
    behind, counts = writer.slots.read(5), writer.tail.counts
    assert replaced is not None and behind is not None
    fence(store, 4, replaced.header.previous)
    fence(store, 6, counts)
    (commit,) = [f for f in behind.frames() if f.payload is not None]
    store.objects[slot_key(5)] = store.objects[slot_key(5)][: commit.offset]
    read = Read(store)
    assert read.told[-3:] == ["5 missing", "5 PUT", "5 damage"] and read.said == []


def test_a_damaged_slot_that_the_next_one_passes_over_did_not_count(store: MemoryStore) -> None:
    counts = writer_of(store).tail.counts
    store.objects[slot_key(5)] = b"nonsense"
    fence(store, 6, counts)
    read = Read(store)
    assert "5 damage" not in read.told
    assert read.said == ["damage 5: the slot is damaged; it did not count"]
    assert read.steps.counts not in (None, counts)
    del store.objects[slot_key(5)]
    read = Read(store)
    assert (read.said, read.steps.holes) == (["damage 5: slot 5 is missing"], [5])


def test_an_object_far_behind_the_end_is_a_stray_unless_it_is_a_slot(store: MemoryStore) -> None:
    store.objects[slot_key(10**9)] = b"nonsense"
    read = Read(store)
    assert read.steps.last_number == 4
    assert read.said == ["note 1000000000: the object is far beyond the end of the log, and not a slot"]


def test_a_checkpoint_of_another_slot_is_damage_and_no_image(store: MemoryStore) -> None:
    counts = writer_of(store).slots.token(1)
    assert counts is not None
    fence(store, 2, counts)
    read = Read(store)
    assert "2 image" not in read.told
    assert read.said[0] == "damage 2: the checkpoint belongs to a slot that is not the one there now"


def test_an_object_is_there_if_the_store_has_it_whatever_the_listing_showed(store: MemoryStore) -> None:
    steps = Read(store).steps
    assert [steps.is_there(file) for file in (4, 5, "segments/a")] == [True, False, False]
    store.objects |= {slot_key(5): b"", "segments/a": b""}
    assert [steps.is_there(file) for file in (5, "segments/a")] == [True, True]
