"""What every store promises, whatever is behind it; and the errors of the port."""

from __future__ import annotations

import pickle
import time

import pyarrow as pa
import pytest

from spillable_stream.format.frame import Payload
from spillable_stream.objects.self_test import check_store
from spillable_stream.objects.store import ObjectMissingError, Store, StoreError
from tests.support.memory_store import MemoryStore
from tests.support.threads import in_threads

LARGE_BYTES = 33 << 20

ODD_KEYS = (
    "log/00000000000000000042",
    "segments/00000000000000000040-query 1.7.c0ffee",
    "merged/1-9.%2F+&=#?",
    "segments/größe-日本",
    "a.b/c..d/~e",
)


def sizes_of(store: Store) -> dict[str, int]:
    return {info.key: info.size_bytes for info in store.list("")}


def test_an_object_is_created_once(store: Store) -> None:
    assert store.create("log/1", b"first")
    assert not store.create("log/1", b"second")
    assert bytes(store.get("log/1")) == b"first"


def test_an_object_may_be_empty(store: Store) -> None:
    assert store.create("log/1", b"")
    assert not store.create("log/1", b"x")
    assert bytes(store.get("log/1")) == b""
    assert sizes_of(store) == {"log/1": 0}


def test_an_object_may_be_created_of_several_buffers(store: Store) -> None:
    parts = [b"header", pa.py_buffer(b"x" * (300 << 10)), b"end"]
    assert store.create("log/1", parts)
    assert not store.create("log/1", [b"other"])
    assert bytes(store.get("log/1")) == b"".join(parts)


def test_what_is_missing_is_missing(store: Store) -> None:
    for read in (lambda: store.get("log/1"), lambda: store.get_range("log/1", 0, 5)):
        with pytest.raises(ObjectMissingError, match="log/1"):
            read()
    store.create("log/1/deeper", b"x")
    with pytest.raises(ObjectMissingError):
        store.get("log/1")


def test_a_range_ends_where_the_object_ends(store: Store) -> None:
    store.create("log/1", b"0123456789")
    ranges = {(0, 4): b"0123", (3, 5): b"34", (8, 100): b"89", (0, 512): b"0123456789", (10, 12): b"", (50, 60): b""}
    assert {wanted: bytes(store.get_range("log/1", *wanted)) for wanted in ranges} == ranges
    store.create("log/2", b"")
    assert [bytes(store.get_range("log/2", 0, end)) for end in (1, 2, 512)] == [b""] * 3


def test_a_replaced_object_is_the_new_one(store: Store) -> None:
    for content in (b"first", b"the second one", b""):
        store.replace("hint", content)
        assert bytes(store.get("hint")) == content


def test_an_object_is_changed_by_what_is_read(store: Store) -> None:
    store.replace("hint", b"first")
    assert store.change("hint", lambda data: bytes(data) + b", second")
    assert bytes(store.get("hint")) == b"first, second"
    assert store.change("hint", lambda _: None)
    assert bytes(store.get("hint")) == b"first, second"
    with pytest.raises(ObjectMissingError):
        store.change("none", lambda _: b"x")
    assert sizes_of(store) == {"hint": 13}


@pytest.mark.parametrize("is_removed", [False, True])
def test_an_object_that_became_another_one_meanwhile_is_not_changed(store: Store, is_removed: bool) -> None:
    store.replace("hint", b"first")

    def meanwhile(data: Payload) -> bytes:
        if is_removed:
            store.delete("hint")
        else:
            store.replace("hint", b"another's")
        return bytes(data) + b", second"

    assert not store.change("hint", meanwhile)
    assert sizes_of(store) == ({} if is_removed else {"hint": 9})


def test_a_deleted_object_is_gone_and_can_be_created_again(store: Store) -> None:
    store.delete("log/1")
    store.create("log/1", b"first")
    store.delete("log/1")
    store.delete("log/1")
    with pytest.raises(ObjectMissingError):
        store.get("log/1")
    assert list(store.list("")) == []
    assert store.create("log/1", b"second")
    assert bytes(store.get("log/1")) == b"second"


def test_a_listing_has_what_begins_with_the_prefix_and_nothing_else(store: Store) -> None:
    sizes = {f"log/{n:020}": n for n in range(8, 13)} | {"logs": 1, "hint": 2, "segments/a/b/c": 3, "segments/a.b": 4}
    for key, size in sizes.items():
        store.create(key, b"x" * size)

    def listed(prefix: str) -> dict[str, int]:
        found = list(store.list(prefix))
        assert len({info.key for info in found}) == len(found)
        return {info.key: info.size_bytes for info in found}

    assert listed("") == sizes
    for prefix in ("log/", "log/0000000000000000001", "log", "segments/a", "segments/a/", "hint", "none", "none/"):
        assert listed(prefix) == {key: size for key, size in sizes.items() if key.startswith(prefix)}


def test_folders_are_the_names_right_under_the_root(store: Store) -> None:
    assert list(store.folders()) == []
    for key in ("orders-0/log/1", "orders-0/hint", "orders-1/channel.json", "größe 1/a/b", "hint"):
        store.create(key, b"x")
    assert sorted(store.folders()) == ["größe 1", "orders-0", "orders-1"]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_means_the_same_in_every_request(store: Store, key: str) -> None:
    assert store.create(key, b"created") and not store.create(key, b"again")
    assert [info.key for info in store.list("")] == [key]
    store.replace(key, b"replaced")
    assert bytes(store.get(key)) == b"replaced" and bytes(store.get_range(key, 2, 4)) == b"pl"
    upload = store.upload(key)
    upload.write(b"uploaded")
    upload.finish()
    assert bytes(store.get(key)) == b"uploaded"
    store.delete(key)
    assert list(store.list("")) == []


def test_buffers_of_arrow_are_taken_as_they_are(store: Store) -> None:
    whole = pa.py_buffer(b"0123456789")
    store.create("log/1", whole.slice(2, 5))
    store.replace("hint", whole)
    upload = store.upload("segments/1")
    for data in (whole, b"", whole.slice(9), b"end"):
        upload.write(data)
    upload.finish()
    assert [bytes(store.get(key)) for key in ("log/1", "hint", "segments/1")] == [
        b"23456",
        b"0123456789",
        b"01234567899end",
    ]


def test_an_upload_is_an_object_when_it_is_finished_and_not_before(store: Store) -> None:
    upload = store.upload("segments/1")
    upload.write(b"part")
    assert list(store.list("")) == []
    upload.finish()
    upload.discard()
    assert bytes(store.get("segments/1")) == b"part"
    empty = store.upload("segments/2")
    empty.finish()
    assert bytes(store.get("segments/2")) == b""


def test_a_discarded_upload_leaves_nothing(store: Store) -> None:
    for size in (10, LARGE_BYTES):
        upload = store.upload("segments/1")
        upload.write(bytes(size))
        upload.discard()
        upload.discard()
    assert list(store.list("")) == []


def test_a_large_upload_is_whole(store: Store) -> None:
    part = bytes(range(256)) * 12_345
    upload, parts = store.upload("segments/1"), LARGE_BYTES // len(part) + 1
    for _ in range(parts):
        upload.write(part)
    assert list(store.list("")) == []
    upload.finish()
    assert sizes_of(store) == {"segments/1": parts * len(part)}
    assert bytes(store.get("segments/1")) == part * parts


def test_of_many_threads_one_creates_an_object_and_all_read_it(store: Store) -> None:
    verdict = check_store(store, races=5)
    assert verdict.sound and verdict.winners == 1, verdict.faults
    assert list(store.list("")) == []

    def work(i: int) -> None:
        for n in range(5):
            assert store.create(f"log/{i}-{n}", b"%d" % i)
            assert bytes(store.get(f"log/{i}-{n}")) == b"%d" % i

    assert in_threads(8, work) == [None] * 8


def test_an_error_survives_pickling_with_all_it_says() -> None:
    """Spark carries errors from its workers to the driver."""
    for error in (
        StoreError("what happened"),
        StoreError("what happened", may_have_happened=False, is_lasting=True),
        StoreError("what happened", is_limited=True),
        ObjectMissingError("what happened"),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error) and str(back) == "what happened"
        assert vars(back) == vars(error)


def test_a_listing_says_when_an_object_was_written_by_one_clock(store: Store) -> None:
    store.create("log/1", b"first")
    time.sleep(1.1)  # stores cut it to seconds
    store.create("log/2", b"second")
    store.replace("hint", b"third")
    times = {info.key: info.modified_seconds for info in store.list("")}
    if not isinstance(store, MemoryStore):
        assert times["log/1"] < times["log/2"] <= times["hint"] < times["log/1"] + 60
