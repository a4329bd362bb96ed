from __future__ import annotations

from contextlib import nullcontext

import pytest

from spillable_stream import Channel
from spillable_stream.objects.metered_store import MeteredStore
from spillable_stream.objects.store import StoreError
from tests.support.events import put
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_counted_by_their_price() -> None:
    store = MeteredStore(MemoryStore(), "s3")
    store.create("a", b"1")
    store.replace("b", b"2")
    store.get("a")
    store.get_range("b", 0, 1)
    assert [info.key for info in store.list("")] == ["b", "a"]
    store.delete("a")
    used = store.usage()
    assert (used.writes, used.reads, used.deletes) == (3, 2, 1)


def test_a_change_is_a_read_and_where_something_changes_a_write() -> None:
    store = MeteredStore(MemoryStore(), "s3")
    store.create("a", b"1")
    for new, writes in ((None, 1), (b"2", 2)):
        store.change("a", lambda _, new=new: new)  # type: ignore[misc]
        assert store.usage().writes == writes
    assert store.usage().reads == 2


@pytest.mark.parametrize(("objects", "requests"), [(0, 1), (1, 1), (1000, 1), (1001, 2)])
def test_a_listing_is_a_request_for_each_thousand_objects_and_one_where_there_are_none(
    objects: int, requests: int
) -> None:
    store = MeteredStore(MemoryStore(), "s3")
    for number in range(objects):
        store.create(str(number), b"")
    before = store.usage().writes
    assert len(list(store.list(""))) == objects
    assert store.usage().writes - before == requests


def test_a_day_costs_what_its_requests_would_at_this_pace() -> None:
    clock = Clock()
    store = MeteredStore(MemoryStore(), "s3", clock)
    for number in range(10):
        store.create(str(number), b"")
        store.get(str(number))
    clock.now += 10
    assert store.usage().dollars_a_day == pytest.approx(86_400 * 5.4e-6)


def test_a_directory_costs_nothing() -> None:
    clock = Clock()
    store = MeteredStore(MemoryStore(), "object+file", clock)
    store.create("a", b"")
    clock.now += 1
    assert (store.usage().writes, store.usage().dollars_a_day) == (1, 0.0)


def test_the_parts_of_a_large_upload_count() -> None:
    store = MeteredStore(MemoryStore(), "s3")
    for size_bytes, writes in ((10, 1), (100 << 20, 1 + 4 + 2)):
        upload = store.upload("a")
        upload.write(bytes(size_bytes))
        upload.finish()
        assert store.usage().writes == writes


def test_a_discarded_upload_counts_for_nothing_and_leaves_nothing() -> None:
    store = MeteredStore(MemoryStore(), "s3")
    upload = store.upload("a")
    upload.write(b"1")
    upload.discard()
    assert store.usage().writes == 0
    assert list(store.list("")) == []


def test_stats_say_what_a_handle_has_asked_of_its_store() -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as channel:
        before = channel.stats().store
        put(channel, b"1")
        after = channel.stats().store
        assert before is not None
        assert after is not None
        assert after.writes - before.writes == 1
        assert after.reads > before.reads


def test_stats_of_a_channel_on_a_disk_have_no_store(tmp_path: object) -> None:
    with Channel(f"{tmp_path}/channel") as channel:
        assert channel.stats().store is None


def test_why_nothing_is_deleted_is_told_as_long_as_that_is_refused_for_good() -> None:
    faulty = FaultyStore(MemoryStore())
    store = MeteredStore(faulty, "s3")
    for fault in (Fault.UNAVAILABLE, Fault.REFUSED, Fault.UNAVAILABLE, None):
        before = store.usage().delete_refusal
        faulty.schedule = lambda _, fault=fault: fault  # type: ignore[misc]
        with pytest.raises(StoreError) if fault else nullcontext() as raised:
            store.delete("a")
        after = store.usage().delete_refusal
        assert after == {Fault.REFUSED: str(raised and raised.value), None: ""}.get(fault, before)
