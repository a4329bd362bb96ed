"""An object is read in windows, and a listing's word is not taken for its size."""

from __future__ import annotations

import pytest

from spillable_stream.objects import stored_object
from spillable_stream.objects.salvage import ObjectBytes
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.stored_object import StoredObject
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore

DATA = bytes(range(100))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    monkeypatch.setattr(stored_object, "WINDOW_BYTES", 16)
    inner = MemoryStore()
    inner.objects |= {slot_key(7): DATA, "segments/a": DATA[:16], "empty": b""}
    return FaultyStore(inner)


@pytest.mark.parametrize("listed", [None, 0, 1, 16, 99, 100, 101, 4000])
@pytest.mark.parametrize(("key", "size"), [(slot_key(7), 100), ("segments/a", 16), ("empty", 0)])
def test_the_size_is_right_whatever_a_listing_says(store: FaultyStore, key: str, size: int, listed: int | None) -> None:
    assert StoredObject(store, key, listed).size() == size


def test_a_large_object_that_was_listed_is_not_read_for_its_size(store: FaultyStore) -> None:
    assert StoredObject(store, slot_key(7), 100).size() == 100
    assert store.counts["get_range"] == 2


def test_any_part_can_be_read_and_what_is_in_the_window_is_not_asked_for_again(store: FaultyStore) -> None:
    file = StoredObject(store, slot_key(7))
    assert [file.read(at, size) for at, size in ((0, 4), (4, 12), (90, 40), (50, 30), (100, 8))] == [
        DATA[:4],
        DATA[4:16],
        DATA[90:],
        DATA[50:80],
        b"",
    ]
    assert store.counts["get_range"] == 4
    assert (ObjectBytes(DATA).read(90, 40), ObjectBytes(DATA).size()) == (DATA[90:], 100)
