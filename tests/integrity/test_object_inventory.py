"""What there is of a channel in a store, and who it is."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator

import pytest

from spillable_stream import CorruptionError, NotAChannelError
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.object_inventory import ObjectInventory, take_object_inventory
from spillable_stream.objects.checkpoints import Hint
from spillable_stream.objects.identity import rewrite_identity
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import ObjectInfo
from spillable_stream.state.ranges import RangeSet
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def channel(store: MemoryStore) -> str:
    """Create a channel of three slots and the checkpoints of two, and return its UUID."""
    channel = new_channel(store)
    writer = Writer(store, channel)
    for body in (b"a", b"b"):
        writer.put(body)
        writer.checkpoints.write(writer.tail, writer.state)
    return channel


def taken(store: MemoryStore) -> tuple[ObjectInventory, list[str]]:
    findings = Findings()
    inventory = take_object_inventory(store, findings)
    return inventory, [f"{f.severity} {f.path}: {f.text}" for f in findings.all()]


def test_all_that_is_there_is_listed_and_checkpoints_are_read(store: MemoryStore, channel: str) -> None:
    segment = "segments/00000000000000000001-local.0." + "a" * 32
    store.objects |= {segment: b"staged", "queries/g": b"a query", "hint": b'{"tail": 2, "checkpoint": 1}'}
    inventory, said = taken(store)
    assert (inventory.channel, inventory.identity_damaged, said) == (channel, False, [])
    assert (inventory.slots, [c.tail.number for c in inventory.checkpoints]) == (RangeSet([(0, 2)]), [1, 2])
    assert (inventory.segments, inventory.queries, inventory.hint) == ([segment], ["g"], Hint(2, 1))
    assert inventory.sizes[segment] == 6


def test_no_key_of_a_slot_that_nobody_may_delete_is_kept(store: MemoryStore, channel: str) -> None:
    class Full(MemoryStore):
        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            yield from super().list(prefix)
            yield from (ObjectInfo(slot_key(number), 100, 0.0) for number in range(3, 30_000))

    full = Full()
    full.objects = store.objects
    taken(full)
    tracemalloc.start()
    try:
        inventory, _ = taken(full)
        size_bytes, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inventory.slots == RangeSet([(0, 29_999)])
    assert max(size_bytes, most_bytes) < 300_000, "a key of each takes ten times as much"


def test_what_a_listing_shows_twice_is_there_once(store: MemoryStore, channel: str) -> None:
    class Repeating(MemoryStore):
        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            yield from [*super().list(prefix), *super().list(prefix)]

    repeating = Repeating()
    repeating.objects = store.objects | {"stray": b""}
    inventory, said = taken(repeating)
    assert inventory.slots == RangeSet([(0, 2)])
    assert said == ["note .: 1 object is not the channel's and is left alone: 'stray'"]


def test_a_checkpoint_that_only_the_hint_names_is_read_too(store: MemoryStore, channel: str) -> None:
    class Forgetful(MemoryStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            return (info for info in super().list(prefix) if not info.key.startswith("checkpoints/"))

    forgetful = Forgetful()
    forgetful.objects = {**store.objects, "hint": b'{"tail": 2, "checkpoint": 2}'}
    assert [c.tail.number for c in taken(forgetful)[0].checkpoints] == [2]


def test_damaged_checkpoints_are_told_from_whole_ones(store: MemoryStore, channel: str) -> None:
    store.objects["checkpoints/00000000000000000002"] = b"nonsense"
    inventory, said = taken(store)
    assert ([c.tail.number for c in inventory.checkpoints], inventory.bad_checkpoints, said) == ([1], [2], [])


@pytest.mark.parametrize("hint", [b"", b"nonsense", b"[]", b'{"tail": "x"}', b"\xff\xfe"])
def test_a_hint_that_is_nonsense_is_noted(store: MemoryStore, channel: str, hint: bytes) -> None:
    store.objects["hint"] = hint
    inventory, said = taken(store)
    assert inventory.hint_damaged and inventory.hint is None
    assert [text[:16] for text in said] == ["note hint: the h"]


def test_strays_are_noted_and_no_more_than_ten_are_named(store: MemoryStore, channel: str) -> None:
    store.objects |= {f"stray-{i:02d}": b"" for i in range(12)}
    (said,) = taken(store)[1]
    assert said.startswith("note .: 12 objects are not the channel's and are left alone: 'stray-00', ")
    assert said.endswith("'stray-09', and 2 more")


def test_the_identity_is_found_in_the_newest_slot_that_is_whole(store: MemoryStore, channel: str) -> None:
    store.objects[slot_key(2)] = b"nonsense"
    for identity in (None, b"nonsense", b'{"format": 2}', b'{"format": 1}'):
        store.objects.pop("channel.json", None)
        if identity is not None:
            store.objects["channel.json"] = identity
        inventory, said = taken(store)
        assert (inventory.channel, inventory.identity_damaged) == (channel, True)
        assert len(said) == 1 and said[0].endswith("; its other objects say it too")
    rewrite_identity(store, channel)
    assert not taken(store)[0].identity_damaged


def test_an_identity_that_is_whole_and_another_channel_s_is_damaged(store: MemoryStore, channel: str) -> None:
    other = MemoryStore()
    new_channel(other)
    store.objects["channel.json"] = other.objects["channel.json"]
    inventory, said = taken(store)
    assert (inventory.channel, inventory.identity_damaged) == (channel, True)
    assert said == [
        f"damage channel.json: the channel's identity is damaged: its slots belong to the channel {channel}"
    ]


def test_without_an_identity_slot_0_alone_is_not_a_channel_yet(store: MemoryStore) -> None:
    new_channel(store)
    del store.objects["channel.json"]
    with pytest.raises(NotAChannelError, match=r"it has no channel\.json"):
        taken(store)


def test_an_identity_that_nothing_else_says_is_lost(store: MemoryStore, channel: str) -> None:
    for key in list(store.objects):
        store.objects[key] = b"nonsense"
    with pytest.raises(CorruptionError, match="the channel's identity can't be read"):
        taken(store)
    store.objects = {"channel.json": json.dumps({"format": 1}).encode()}
    with pytest.raises(NotAChannelError, match="holds a channel of a disk"):
        taken(store)
