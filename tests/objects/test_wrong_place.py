"""What is said of an address that is not a channel's, by what is there or near it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from spillable_stream import Channel, verify
from spillable_stream.errors import NotAChannelError, OptionError
from spillable_stream.format.file_names import BACKUPS
from spillable_stream.objects import wrong_place
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import LOG, slot_key
from spillable_stream.objects.store import ObjectInfo, StoreError
from tests.support.events import put
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory

Stores = dict[str, MemoryStore]
MANIFEST = f"{BACKUPS}{1:020d}.json"


@pytest.fixture
def stores() -> Iterator[Stores]:
    with stores_in_memory() as stores:
        yield stores


def make_channel(stores: Stores, address: str) -> None:
    """Create a channel, whose objects are those of the bucket, also as they are seen from one level up."""
    with Channel(address, commit_interval=0) as channel:
        put(channel, b"0")
    above, _, name = address.rpartition("/")
    seen = stores.setdefault(above, MemoryStore(above)).objects
    seen.update({f"{name}/{key}": data for key, data in stores[address].objects.items()})


def said_of(address: str) -> str:
    """Return what everybody who only looks is told of an address behind what it lacks."""
    said = set[str]()
    for look in (
        lambda: Channel(address, create=False),
        lambda: Channel(address, readonly=True),
        lambda: verify(address),
    ):
        with pytest.raises(NotAChannelError) as raised:
            look()
        assert raised.value.is_missing
        said.add(str(raised.value))
    (one,) = said
    return one.removeprefix(f"{address} is not a channel: it has no channel.json")


def test_an_address_with_nothing_near_it_only_lacks_a_channel(stores: Stores) -> None:
    assert said_of(URL) == ""
    assert stores[URL].objects == {}


def test_a_backup_is_named_with_how_to_restore_it(stores: Stores) -> None:
    stores[URL] = MemoryStore(URL)
    stores[URL].objects[MANIFEST] = b"{}"
    assert said_of(URL) == f", and is a backup: 'spillable restore {URL} PATH' creates a channel from it"


@pytest.mark.parametrize("name", ["log", "checkpoints", "segments", "queries", "workers", "quarantine"])
def test_an_address_in_a_channel_names_the_channel(stores: Stores, name: str) -> None:
    make_channel(stores, URL)
    assert said_of(f"{URL}/{name}") == f", and is inside of a channel: give {URL}"


def test_an_address_above_a_channel_names_one(stores: Stores) -> None:
    make_channel(stores, f"{URL}/eu")
    make_channel(stores, f"{URL}/us")
    stores[URL].objects["archive/notes.txt"] = b"mine"
    assert said_of(URL) == f", but is above a channel: give {URL}/eu, or another one there"


def test_a_large_place_is_not_listed_whole_for_a_name_of_a_channel(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_channel(stores, f"{URL}/eu")
    stores[URL].objects |= {f"east/{i:04}": b"" for i in range(50)}
    monkeypatch.setattr(wrong_place, "_MOST_LISTED", 10)
    listed = list[str]()
    real = MemoryStore.list

    def listing(self: MemoryStore, prefix: str) -> Iterator[ObjectInfo]:
        for info in real(self, prefix):
            if self is stores[URL] and not prefix:
                listed.append(info.key)
            yield info

    monkeypatch.setattr(MemoryStore, "list", listing)
    monkeypatch.delattr(MemoryStore, "folders")
    with pytest.raises(NotAChannelError, match=f"is above a channel: give {URL}/eu"):
        Channel(URL, readonly=True)
    assert len(listed) == 10


def test_a_store_that_refuses_to_be_looked_at_changes_nothing_about_the_error(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("403", may_have_happened=False)

    for verb in ("list", "folders"):
        monkeypatch.setattr(MemoryStore, verb, refuse)
    for look in (lambda: Channel(f"{URL}/log", create=False), lambda: Channel(f"{URL}/log", readonly=True)):
        with pytest.raises(NotAChannelError, match=r"it has no channel\.json$"):
            look()


# ── what is created ─────────────────────────────────────────────────────────────────────────────


def test_no_channel_is_created_in_the_folder_of_another_one(stores: Stores) -> None:
    make_channel(stores, URL)
    for inside in (f"{URL}/log", f"{URL}/log/deep/down"):
        with pytest.raises(OptionError, match=f"^{inside} is inside of {URL}, a channel: give a place outside of it$"):
            Channel(inside)
        assert stores[inside].objects == {}
        assert said_of(inside) == f", and is inside of a channel: give {URL}"


@pytest.mark.parametrize("folder", ["backups", "delays", "events", "states"])
def test_no_channel_is_created_in_the_folder_of_a_backup(stores: Stores, folder: str) -> None:
    stores[URL] = MemoryStore(URL)
    stores[URL].replace(MANIFEST, b"{}")
    for inside in (f"{URL}/{folder}", f"{URL}/{folder}/deep/down"):
        with pytest.raises(OptionError, match=f"^{inside} is inside of {URL}, a backup: give a place outside of it$"):
            Channel(inside)
        assert stores[inside].objects == {}


def test_a_folder_of_very_many_objects_is_not_read_to_its_end_for_a_backup(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another program, which calls its folder so, too."""
    monkeypatch.setattr(wrong_place, "_MOST_LISTED", 10)
    others = MemoryStore(URL)

    def listed(prefix: str) -> Iterator[ObjectInfo]:
        assert prefix == BACKUPS
        yield from (ObjectInfo(f"{BACKUPS}{number}.dump", 1, 0) for number in range(10))
        pytest.fail("it is read on")

    monkeypatch.setattr(others, "list", listed)
    stores[URL] = others
    Channel(f"{URL}/backups/orders").close()


def test_no_channel_is_created_around_one_that_is_where_its_slots_would_be_and_nothing_is_said_to_be_left(
    stores: Stores,
) -> None:
    """Whoever removes what is under the place removes that channel."""
    make_channel(stores, f"{URL}/log")
    before = dict(stores[URL].objects)
    with pytest.raises(OptionError, match=f"^{URL} holds {URL}/log, another channel: give that, or a place beside it$"):
        Channel(URL)
    assert stores[URL].objects == before
    assert said_of(URL) == f", but is above a channel: give {URL}/log, or another one there"


def test_slots_that_a_channel_left_are_still_named(stores: Stores) -> None:
    stores[URL] = MemoryStore(URL)
    stores[URL].objects[slot_key(7)] = b"left"
    with pytest.raises(NotAChannelError, match="but slots of a channel that was removed"):
        Channel(URL)
    assert set(stores[URL].objects) == {slot_key(7)}


def test_a_channel_beside_folders_of_such_names_is_created(stores: Stores) -> None:
    Channel("s3://bucket/log").close()
    Channel("s3://bucket/shop/log").close()
    assert f"{LOG}{IDENTITY}" not in stores["s3://bucket/shop/log"].objects


def test_slots_that_were_left_are_not_held_in_memory_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(_: str) -> Iterator[ObjectInfo]:
        return (ObjectInfo(slot_key(number), 1, 0.0) for number in range(20_000, 0, -1))

    store = MemoryStore(URL)
    monkeypatch.setattr(store, "list", many)
    tracemalloc.start()
    try:
        with pytest.raises(NotAChannelError, match=f"such as {slot_key(1)}"):
            wrong_place.refuse_leftovers(store, Location.parse(URL))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
