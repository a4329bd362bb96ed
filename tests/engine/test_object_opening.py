"""Making and opening channels in object stores: what is there decides, and nothing is made by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spillable_stream import Channel
from spillable_stream.engine.object_opening import ensure_object_channel, object_identity, open_object_engine
from spillable_stream.errors import CorruptionError, NotAChannelError, OptionError, UnsafeStoreError
from spillable_stream.objects.location import Location
from tests.support.events import peek, put
from tests.support.lying_store import OverwritingStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory
from tests.support.object_logs import new_channel, new_state

LOCATION = Location.parse(URL)


@pytest.fixture
def stores() -> Iterator[dict[str, MemoryStore]]:
    with stores_in_memory() as stores:
        yield stores


def test_a_channel_is_made_once_and_found_then(stores: dict[str, MemoryStore]) -> None:
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
def test_none_is_made_by_accident(stores: dict[str, MemoryStore], call: Callable[[], object]) -> None:
    with pytest.raises(NotAChannelError, match=f"^{URL} is not a channel: it has no channel.json"):
        call()
    assert stores[URL].objects == {}


def test_options_that_are_refused_make_none(stores: dict[str, MemoryStore]) -> None:
    with pytest.raises(OptionError):
        Channel(URL, memory_capacity=7)
    assert stores[URL].objects == {}


def test_none_is_made_in_a_store_that_replaces_what_is_there() -> None:
    store = OverwritingStore(URL)
    with stores_in_memory(lambda _: store), pytest.raises(UnsafeStoreError):
        ensure_object_channel(LOCATION, lambda: new_state().small())
    assert "channel.json" not in store.objects


def test_what_can_not_be_read_is_not_taken_for_a_missing_channel(stores: dict[str, MemoryStore]) -> None:
    stores[URL] = MemoryStore(URL)
    stores[URL].objects["channel.json"] = b"damaged"
    with pytest.raises(CorruptionError, match="restore it from a copy"):
        Channel(URL)
    assert stores[URL].objects == {"channel.json": b"damaged"}


def test_an_engine_is_opened_on_the_store_that_it_is_given() -> None:
    memory = MemoryStore(URL)
    channel = new_channel(memory)
    engine = open_object_engine(LOCATION, 30, readonly=True, store=memory)
    assert (engine.channel, engine.log.store._inner, engine.log.is_view) == (channel, memory, True)


def test_a_channel_is_the_same_through_every_handle(stores: dict[str, MemoryStore]) -> None:
    with Channel(URL, commit_interval=0) as channel, Channel(URL) as other:
        put(channel, b"0")
        assert channel.uuid == other.uuid == object_identity(LOCATION)
        assert peek(other) == [b"0"]
