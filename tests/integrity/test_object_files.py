"""The objects that events are in, by the names that the state has of them."""

from __future__ import annotations

import pytest

from spillable_stream.integrity.object_files import FilesOfStore, is_there
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import ObjectMissingError
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore

DATA = bytes(range(100))


@pytest.fixture
def store() -> FaultyStore:
    inner = MemoryStore()
    inner.objects |= {slot_key(7): DATA, "segments/a": DATA[:16], "empty": b""}
    return FaultyStore(inner)


def test_an_object_is_there_or_not_and_is_asked_for_once(store: FaultyStore) -> None:
    assert is_there(store, "empty") and not is_there(store, "nothing")
    store.forget_counts()
    files = FilesOfStore(store, "a channel", {})
    assert [files.exists(7), files.exists(7), files.exists(8), files.exists("segments/a")] == [True, True, False, True]
    assert store.counts["get_range"] == 3


def test_files_are_slots_by_their_numbers_and_segments_by_their_keys(store: FaultyStore) -> None:
    files = FilesOfStore(store, "a channel", {slot_key(7): 100})
    assert (str(files.path(7)), str(files.path("segments/a"))) == (slot_key(7), "segments/a")
    with files.opened(7) as file, files.opened(7) as again:
        assert file is again and file.size() == 100
    assert files.end(7) is None
    with files.opened(8) as file, pytest.raises(ObjectMissingError):
        file.size()
