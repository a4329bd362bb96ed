"""Who creates a channel in a store, and what else may be at its root."""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from spillable_stream import Channel
from spillable_stream.errors import CorruptionError, NotAChannelError, StorageError, UnsupportedFormatError
from spillable_stream.format.slot import Slot
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.identity import (
    IDENTITY,
    create_identity,
    create_own_identity,
    extend_identity,
    read_identity,
    rewrite_identity,
)
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import Store, StoreError
from spillable_stream.state.block import Block
from tests.support.fake_files import Call, FaultyFileSystem
from tests.support.faulty_store import Fault, FaultyStore, Request, once
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import FakeTime, new_state


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


def make(store: Store, writer: str = "a test") -> str:
    return create_identity(store, new_state().small(), writer, FakeTime().backoff())


def first_slot(memory: MemoryStore, channel: str) -> Slot:
    return Slot.parse(channel, 0, memory.objects[slot_key(0)])


def test_a_channel_is_slot_0_with_its_state_and_the_same_uuid_beside_it(memory: MemoryStore) -> None:
    assert read_identity(memory) is None
    channel = make(memory)
    assert read_identity(memory) == channel == str(uuid.UUID(channel))
    assert memory.objects.keys() == {slot_key(0), IDENTITY}
    assert first_slot(memory, channel).header.state is not None


@pytest.mark.parametrize("kind", ["slot", "identity"])
def test_of_two_makers_at_once_the_one_with_slot_0_decides(memory: MemoryStore, kind: str) -> None:
    """The other one comes right before this one creates slot 0, or `channel.json`."""
    store, others = FaultyStore(memory), list[str]()

    def come_first(request: Request) -> None:
        if request.kind == "create" and (request.key == IDENTITY) == (kind == "identity") and not others:
            others.append(make(memory, "the other one"))

    store.schedule = come_first  # type: ignore[assignment]
    assert [make(store)] == others
    assert read_identity(memory) == others[0]
    assert first_slot(memory, others[0]).header.writer == ("a test" if kind == "identity" else "the other one")


def test_a_maker_that_was_killed_halfway_is_completed_by_the_next(memory: MemoryStore) -> None:
    with pytest.raises(StorageError, match="no channel could be created at memory://bucket/orders"):
        make(FaultyStore(memory, lambda r: Fault.REFUSED if r.key == IDENTITY else None), "the first one")
    assert (read_identity(memory), memory.objects.keys()) == (None, {slot_key(0)})
    channel = make(memory)
    assert read_identity(memory) == channel
    assert first_slot(memory, channel).header.writer == "the first one"


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.RETRIED, Fault.CONFLICT, Fault.UNAVAILABLE])
@pytest.mark.parametrize("key", [slot_key(0), IDENTITY])
def test_an_answer_that_is_lost_or_wrong_creates_no_second_channel(memory: MemoryStore, fault: Fault, key: str) -> None:
    channel = make(FaultyStore(memory, once("create", fault, key)))
    assert read_identity(memory) == first_slot(memory, channel).header.channel == channel


@pytest.mark.parametrize("fault", [None, Fault.ANSWER_LOST, Fault.RETRIED, Fault.CONFLICT, Fault.UNAVAILABLE])
@pytest.mark.parametrize("key", [slot_key(0), IDENTITY])
def test_a_maker_with_a_uuid_of_its_own_knows_that_it_decided(
    memory: MemoryStore, fault: Fault | None, key: str
) -> None:
    store, mine = FaultyStore(memory, once("create", fault, key) if fault else lambda _: None), str(uuid.uuid4())
    assert create_own_identity(store, mine, new_state().small(), "me", FakeTime().backoff())
    assert read_identity(memory) == mine and first_slot(memory, mine).header.writer == "me"


@pytest.mark.parametrize("is_same_uuid", [False, True])
def test_a_maker_that_comes_second_knows_that_too(memory: MemoryStore, is_same_uuid: bool) -> None:
    first = make(memory, "the first one")
    mine = first if is_same_uuid else str(uuid.uuid4())
    assert not create_own_identity(memory, mine, new_state().small(), "me", FakeTime().backoff())
    assert read_identity(memory) == first and first_slot(memory, first).header.writer == "the first one"


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.UNAVAILABLE, Fault.LATE])
def test_where_nobody_says_whether_the_identity_was_created_that_is_told(memory: MemoryStore, fault: Fault) -> None:
    def schedule(request: Request) -> Fault | None:
        if request.key != IDENTITY:
            return None
        return fault if request.kind == "create" else Fault.UNAVAILABLE

    said = "not known whether a channel was created at memory://bucket/orders: .*Open it to find out"
    with pytest.raises(StorageError, match=said):
        make(FaultyStore(memory, schedule))
    assert (IDENTITY in memory.objects) == (fault is Fault.ANSWER_LOST)


def test_a_directory_that_does_not_sync_the_identity_is_not_said_to_have_no_channel(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    store = DirectoryStore(tmp_path / "orders", fs)
    for key in ("hint", "log/1"):
        store.create(key, b"")
    with (
        fs.failing(lambda call: call == Call("sync_directory", "orders")),
        pytest.raises(StorageError, match=r"not known whether a channel was created at .*/orders: "),
    ):
        make(store)
    assert read_identity(store) is not None


def test_a_refusal_is_told_at_once(memory: MemoryStore) -> None:
    store = FaultyStore(memory, lambda _: Fault.REFUSED)
    with pytest.raises(StorageError, match="no channel could be created"):
        make(store)
    assert len(store.requests) == 1


def test_something_else_in_the_place_of_slot_0_is_left_alone(memory: MemoryStore) -> None:
    memory.objects[slot_key(0)] = b"somebody's"
    with pytest.raises(CorruptionError, match="this is not a slot of a channel; choose another path"):
        make(memory)
    assert memory.objects == {slot_key(0): b"somebody's"}


def test_the_directory_of_a_channel_of_a_disk_is_named_as_that(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    with pytest.raises(NotAChannelError, match="holds a channel of a disk, not of a store: open it by its directory's"):
        read_identity(DirectoryStore(channel.path))  # type: ignore[arg-type]


def damaged(changed: Callable[[dict[str, object]], object]) -> bytes:
    memory = MemoryStore()
    make(memory)
    value = json.loads(memory.objects[IDENTITY])
    return json.dumps(changed(value) or value).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"format": "new"}',
        b'{"format": 2}',
        damaged(lambda value: value.update(checksum=0)),
        damaged(lambda value: value.update(channel=str(uuid.uuid4()))),
        damaged(lambda value: value.pop("checksum") and value),
    ],
    ids=["empty", "no JSON", "no map", "its version", "its UUID", "its checksum", "another UUID", "no checksum"],
)
def test_an_identity_that_is_invalid_is_damage_and_not_a_missing_channel(memory: MemoryStore, data: bytes) -> None:
    memory.objects[IDENTITY] = data
    with pytest.raises(CorruptionError, match=r"'spillable repair .*' rewrites it") as caught:
        read_identity(memory)
    assert caught.value.path == f"{memory.root}/{IDENTITY}"


def test_an_identity_that_came_damaged_once_is_read_again(memory: MemoryStore) -> None:
    channel = make(memory)
    store = FaultyStore(memory, once("get", Fault.SHORT, IDENTITY))
    assert read_identity(store) == channel
    assert store.counts == {"get": 2}


def test_an_extended_channel_says_a_version_that_earlier_versions_refuse(memory: MemoryStore) -> None:
    channel = make(memory)
    assert extend_identity(memory, channel)
    written = memory.objects[IDENTITY]
    assert json.loads(written)["format"] == 3
    assert read_identity(memory) == channel
    store = FaultyStore(memory, lambda r: Fault.REFUSED if r.kind == "replace" else None)
    assert extend_identity(store, channel), "it is so already: nothing is written"
    assert memory.objects[IDENTITY] == written


@pytest.mark.parametrize("is_another", [False, True])
def test_a_channel_that_is_not_there_any_more_is_not_extended(memory: MemoryStore, is_another: bool) -> None:
    channel = make(memory)
    memory.objects.clear()
    if is_another:
        make(memory)
    before = dict(memory.objects)
    assert not extend_identity(memory, channel)
    assert memory.objects == before


def test_a_channel_that_was_created_while_an_old_one_is_extended_keeps_its_identity(memory: MemoryStore) -> None:
    """The handle of the old one was paused between its look and its write."""
    channel, others = make(memory), list[str]()

    def create_another(request: Request) -> None:
        if request.kind == "replace" and not others:
            memory.objects.clear()
            others.append(make(memory))

    store = FaultyStore(memory, create_another)  # type: ignore[arg-type]
    assert not extend_identity(store, channel)
    assert [read_identity(memory)] == others


def test_a_channel_that_others_extend_at_once_is_extended(memory: MemoryStore) -> None:
    channel = make(memory)

    def extend_first(request: Request) -> None:
        if request.kind == "replace":
            extend_identity(memory, channel)

    store = FaultyStore(memory, extend_first)  # type: ignore[arg-type]
    assert extend_identity(store, channel)
    assert store.counts == {"get": 2, "replace": 1}


def test_an_identity_that_came_damaged_once_is_extended(memory: MemoryStore) -> None:
    channel = make(memory)
    assert extend_identity(FaultyStore(memory, once("get", Fault.SHORT, IDENTITY)), channel)
    assert json.loads(memory.objects[IDENTITY])["format"] == 3


def test_the_extension_that_a_directory_did_not_sync_is_not_believed(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    store = DirectoryStore(tmp_path / "orders", fs)
    channel = make(store)
    for _ in range(2):
        with fs.failing(lambda call: call == Call("sync_directory", "orders")), pytest.raises(StorageError):
            extend_identity(store, channel)
    fs.calls.clear()
    assert extend_identity(store, channel)
    assert fs.count("sync_directory", "orders") == 1


def test_a_channel_that_is_restored_with_events_that_expire_is_extended_at_once(memory: MemoryStore) -> None:
    state = new_state()
    state.blocks.add(Block(1, 1, "segments/x", 0, 8, 1, first_expiry_us=5, last_expiry_us=5))
    state.next_id = 2
    create_own_identity(memory, str(uuid.UUID(int=7)), dict(state.image()), "a test", FakeTime().backoff())
    assert json.loads(memory.objects[IDENTITY])["format"] == 3


def test_an_extended_channel_of_a_disk_is_named_as_that(memory: MemoryStore) -> None:
    memory.objects[IDENTITY] = b'{"format": 3, "dataDirs": []}'
    with pytest.raises(NotAChannelError, match="holds a channel of a disk, not of a store"):
        read_identity(memory)


def test_a_channel_of_a_newer_version_is_refused_as_that_whatever_else_it_says(memory: MemoryStore) -> None:
    memory.objects[IDENTITY] = b'{"format": 4, "identity": "in other words"}'
    with pytest.raises(UnsupportedFormatError, match="format version 4; this package reads up to 3: upgrade"):
        read_identity(memory)


def test_a_creation_that_a_directory_refuses_leaves_none_behind(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("os.link", side_effect=full), pytest.raises(StorageError, match="no channel could be created"):
        make(DirectoryStore(tmp_path / "missing" / "orders"))
    assert not list(tmp_path.iterdir())


# ── written anew ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("there", [None, b"damaged", b'{"format": 1}', "another channel's"])
def test_an_identity_that_is_missing_or_says_something_else_is_written_anew(
    memory: MemoryStore, there: bytes | str | None
) -> None:
    channel, other = make(memory), MemoryStore()
    make(other)
    memory.objects.pop(IDENTITY)
    if there is not None:
        memory.objects[IDENTITY] = there if isinstance(there, bytes) else other.objects[IDENTITY]
    rewrite_identity(memory, channel)
    assert read_identity(memory) == channel


@pytest.mark.parametrize("there", [None, b"damaged"])
def test_an_identity_that_others_have_mended_and_extended_meanwhile_stays(
    memory: MemoryStore, there: bytes | None
) -> None:
    """Two repairs at once, and a handle that delays the first event between the two."""
    channel = make(memory)
    memory.objects.pop(IDENTITY)
    if there is not None:
        memory.objects[IDENTITY] = there
    others = list[int]()

    def mend_first(request: Request) -> None:
        if request.kind in ("create", "replace") and not others:
            others.append(request.number)
            rewrite_identity(memory, channel)
            assert extend_identity(memory, channel)

    rewrite_identity(FaultyStore(memory, mend_first), channel)  # type: ignore[arg-type]
    assert others and json.loads(memory.objects[IDENTITY])["format"] == 3


def test_the_identity_of_an_extended_channel_says_so(memory: MemoryStore) -> None:
    channel = make(memory)
    rewrite_identity(memory, channel, extended=True)
    assert json.loads(memory.objects[IDENTITY])["format"] == 3


def test_an_identity_of_a_newer_version_is_not_written_over(memory: MemoryStore) -> None:
    channel = make(memory)
    memory.objects[IDENTITY] = b'{"format": 4}'
    with pytest.raises(UnsupportedFormatError):
        rewrite_identity(memory, channel)
    assert memory.objects[IDENTITY] == b'{"format": 4}'


def test_an_identity_that_changes_all_the_time_is_an_error(memory: MemoryStore) -> None:
    channel = make(memory)

    def damage(request: Request) -> None:
        if request.kind == "replace":
            memory.objects[IDENTITY] = b"%d" % request.number

    memory.objects[IDENTITY] = b"damaged"
    with pytest.raises(StoreError, match=r"channel\.json changes all the time; nothing was written"):
        rewrite_identity(FaultyStore(memory, damage), channel)  # type: ignore[arg-type]
