"""Making and opening channels in object stores: what is there decides, and nothing is created by accident."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from spillable_stream import Channel
from spillable_stream.engine.store.object_opening import ensure_object_channel, object_identity, open_object_engine
from spillable_stream.errors import CorruptionError, NotAChannelError, OptionError, StorageError, UnsafeStoreError
from spillable_stream.objects.checkpoints import CHECKPOINTS, HINT, checkpoint_key
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import LOG, slot_key
from tests.support.events import peek, put
from tests.support.lying_store import OverwritingStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, faulty_stores_in_memory, stores_in_memory
from tests.support.object_logs import new_channel, new_state

LOCATION = Location.parse(URL)


@pytest.fixture
def stores() -> Iterator[dict[str, MemoryStore]]:
    with stores_in_memory() as stores:
        yield stores


def test_a_channel_is_created_once_and_found_then(stores: dict[str, MemoryStore]) -> None:
    made = list[int]()

    def new() -> object:
        made.append(1)
        return new_state().small()

    for _ in range(3):
        ensure_object_channel(LOCATION, new)  # type: ignore[arg-type]
    assert made == [1]
    assert open_object_engine(LOCATION, 30, readonly=False).channel == object_identity(LOCATION)


BY_ACCIDENT: list[Callable[[], object]] = [
    lambda: ensure_object_channel(LOCATION, None),
    lambda: object_identity(LOCATION),
    lambda: open_object_engine(LOCATION, 30, readonly=False),
    lambda: Channel(URL, create=False),
    lambda: Channel(URL, readonly=True),
]


@pytest.mark.parametrize("call", BY_ACCIDENT)
def test_none_is_created_by_accident(stores: dict[str, MemoryStore], call: Callable[[], object]) -> None:
    with pytest.raises(NotAChannelError, match=f"^{URL} is not a channel: it has no channel.json"):
        call()
    assert stores[URL].objects == {}


def test_options_that_are_refused_make_none(stores: dict[str, MemoryStore]) -> None:
    with pytest.raises(OptionError):
        Channel(URL, memory_capacity=7)
    assert stores[URL].objects == {}


def test_none_is_created_in_a_store_that_replaces_what_is_there() -> None:
    store = OverwritingStore(URL)
    with stores_in_memory(lambda _: store), pytest.raises(UnsafeStoreError):
        ensure_object_channel(LOCATION, lambda: new_state().small())
    assert "channel.json" not in store.objects


def test_what_cannot_be_read_is_not_taken_for_a_missing_channel(stores: dict[str, MemoryStore]) -> None:
    stores[URL] = MemoryStore(URL)
    stores[URL].objects["channel.json"] = b"damaged"
    with pytest.raises(CorruptionError, match=r"'spillable repair .*' rewrites it .*, or restore it from a copy"):
        Channel(URL)
    assert stores[URL].objects == {"channel.json": b"damaged"}


def test_an_engine_is_opened_on_the_store_at_its_location() -> None:
    memory = MemoryStore(URL)
    channel = new_channel(memory)
    with stores_in_memory(lambda _: memory):
        engine = open_object_engine(LOCATION, 30, readonly=True)
    assert (engine.channel, engine.log.store._inner, engine.log.is_view) == (channel, memory, True)


def test_a_channel_is_the_same_through_every_handle(stores: dict[str, MemoryStore]) -> None:
    with Channel(URL, commit_interval=0) as channel, Channel(URL) as other:
        put(channel, b"0")
        assert channel.uuid == other.uuid == object_identity(LOCATION)
        assert peek(other) == [b"0"]


def test_a_directory_in_which_none_can_be_created_is_left_as_it_was(tmp_path: Path) -> None:
    no_links = OSError(errno.EPERM, os.strerror(errno.EPERM))
    with mock.patch("os.link", side_effect=no_links), pytest.raises(StorageError, match="makes no hard links"):
        Channel(f"object+file://{tmp_path}/missing/orders")
    assert not list(tmp_path.iterdir())


def test_the_directory_of_a_new_channel_has_nothing_of_the_test_before(tmp_path: Path) -> None:
    Channel(f"object+file://{tmp_path}/orders").close()
    assert {path.name for path in (tmp_path / "orders").iterdir()} == {IDENTITY, "log"}


# ── a channel that was removed ──────────────────────────────────────────────────────────────────


def test_none_is_created_where_slots_of_another_one_are_left(stores: dict[str, MemoryStore]) -> None:
    """The new one would come to them, and could not continue. A handle of a removed channel may leave some, too."""
    with Channel(URL, commit_interval=0) as channel:
        put(channel, b"0")
        objects = stores[URL].objects
        for key in [IDENTITY, slot_key(0)]:
            del objects[key]
        before = dict(objects)
        with pytest.raises(NotAChannelError, match=f"but slots of a channel .* 'spillable repair {URL}'") as e:
            Channel(URL)
    assert slot_key(1) in str(e.value)
    assert objects == before


def test_a_channel_that_lost_its_identity_only_has_it_again(stores: dict[str, MemoryStore]) -> None:
    with Channel(URL, commit_interval=0) as channel:
        put(channel, b"0")
        uuid = channel.uuid
    del stores[URL].objects[IDENTITY]
    with Channel(URL) as again:
        assert (again.uuid, peek(again)) == (uuid, [b"0"])


@pytest.mark.parametrize("is_there", ["nothing", "another one"])
@pytest.mark.parametrize("call", [peek, Channel.stats, lambda channel: list(channel.read())])
def test_a_handle_of_a_channel_that_was_removed_says_so(
    stores: dict[str, MemoryStore], is_there: str, call: Callable[[Channel], object]
) -> None:
    with Channel(URL, commit_interval=0) as channel:
        put(channel, b"0")
        peek(channel)
        stores[URL].objects.clear()
        if is_there == "another one":
            with Channel(URL, commit_interval=0) as other:
                for _ in range(9):
                    put(other, b"1")
        with pytest.raises(NotAChannelError, match=f"the channel {channel.uuid} is no longer at {URL}"):
            call(channel)


# ── what is asked for ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def asked() -> Iterator[Callable[[], list[str]]]:
    """Return what all handles have asked for since this was called last: keys that were read, the slots in order."""

    def asked() -> list[str]:
        found = [request for store in stores for request in store.requests]
        for store in stores:
            store.forget_counts()
        is_read = {"get", "get_range"}
        keys = [request.key if request.kind in is_read else f"{request.kind} {request.key}" for request in found]
        return sorted(keys, key=lambda key: key if key.startswith(LOG) else "")

    with faulty_stores_in_memory() as stores:
        yield asked


@pytest.mark.parametrize("readonly", [False, True])
def test_an_open_reads_the_identity_the_hint_the_checkpoint_and_what_came_since(
    asked: Callable[[], list[str]], readonly: bool
) -> None:
    with Channel(URL, commit_interval=0) as channel:
        put(channel, b"0")
        channel.checkpoint()
        asked()
        with Channel(URL, readonly=readonly):
            assert asked() == [IDENTITY, HINT, checkpoint_key(1), slot_key(1), slot_key(2), slot_key(3)]
        assert asked() == []
        put(channel, b"1")
        asked()
        with Channel(URL, readonly=readonly):
            assert asked() == [IDENTITY, HINT, checkpoint_key(1), *(slot_key(n) for n in (1, 2, 3, 4))]


def test_an_open_without_a_checkpoint_reads_all_slots_and_lists_once(asked: Callable[[], list[str]]) -> None:
    with Channel(URL, commit_interval=0, checkpoint_on_close=False) as channel:
        put(channel, b"0")
    asked()
    with Channel(URL):
        slots = [slot_key(n) for n in (0, 0, 1, 2, 3)]
        assert asked() == [IDENTITY, HINT, f"list {CHECKPOINTS}", *slots]
