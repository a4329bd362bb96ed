"""What a process hands over of a channel in a store, and a handle in another one that begins with it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spillable_stream import Channel, DataLossError, NotAChannelError
from spillable_stream.engine.known_state import KnownState, beginning_with, known_state
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.engine.store import last_known
from spillable_stream.engine.store.last_known import accept
from spillable_stream.engine.store.object_checkpointing import ObjectCheckpointing
from spillable_stream.format.frame import Frame, FrameType
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.location import Location
from tests.support.events import put, take
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import (
    URL,
    asked,
    collect_now,
    cut_off,
    faulty_stores_in_memory,
    log_of,
    put_with_an_older_hint,
)

PLACE = Location.parse(URL)


@pytest.fixture
def opened() -> Iterator[list[FaultyStore]]:
    """The stores as their handles see them, in the order of their opens."""
    with faulty_stores_in_memory() as stores:
        yield stores


@pytest.fixture
def channel(opened: list[FaultyStore]) -> Iterator[Channel]:
    with Channel(URL, commit_interval=0, gc_delay=0) as channel:
        yield channel


def known(channel: Channel) -> KnownState:
    found = channel.port().known_state()
    assert found is not None
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def begun(earlier: KnownState | None) -> Channel:
    with beginning_with(earlier):
        return Channel(URL, create=False)


def test_a_handle_begins_with_it_without_a_request_and_looks_before_it_appends(
    opened: list[FaultyStore], channel: Channel
) -> None:
    put(channel, b"1")
    earlier = known(channel)
    put(channel, b"2")
    opened.clear()
    with begun(earlier) as other:
        assert [request for store in opened for request in asked(store)] == []
        put(other, b"3")
        (store,) = [store for store in opened if store.requests]
        kinds = [kind for kind, key in asked(store) if key.startswith("log/")]
        assert kinds == ["get", "get", "get_range", "create", "get_range"], "what came, the end, a proof; and one more"
        assert take(other, limit=5) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("has_listed", [False, True])
def test_whoever_begins_with_it_lists_the_checkpoints_before_an_append_unless_that_was_done(
    opened: list[FaultyStore], channel: Channel, has_listed: bool
) -> None:
    put(channel, b"1")
    channel.checkpoint()
    with Channel(URL, create=False, commit_interval=0, gc_delay=0) as hinted:
        if has_listed:
            put(hinted, b"2")
        earlier = known(hinted)
    opened.clear()
    with begun(earlier) as other:
        for _ in range(2):
            put(other, b"3")
        assert sum(store.counts["list"] for store in opened) == 1 - has_listed


@pytest.mark.parametrize("hands", [1, 2])
def test_whoever_begins_with_what_began_with_an_older_checkpoint_refuses_to_append_where_later_slots_are_lost(
    channel: Channel, hands: int
) -> None:
    """Though its state is of a slot behind the newest checkpoint by now: an earlier version has put others there."""
    put_with_an_older_hint(channel)
    cut_off(channel)
    with Channel(URL, create=False) as earlier:
        log_of(earlier)._known.unlisted = None
        for _ in range(3):
            put(earlier, b"in its place")
    with Channel(URL, create=False) as hinted:
        earlier = known(hinted)
    for _ in range(hands - 1):
        with begun(earlier) as other:
            earlier = known(other)
    with begun(earlier) as other, pytest.raises(DataLossError, match="the newest checkpoint is of"):
        put(other, b"behind the loss")


def test_it_is_for_its_own_channel_in_its_own_block(channel: Channel) -> None:
    earlier = known(channel)
    assert known_state(PLACE) is None
    with beginning_with(earlier):
        assert known_state(PLACE) == earlier
        assert known_state(Location.parse(f"{URL}-2")) is None
        with beginning_with(None):
            assert known_state(PLACE) is None
    assert known_state(PLACE) is None


def test_a_handle_that_begins_behind_what_was_collected_loads_anew(channel: Channel) -> None:
    put(channel, b"1")
    earlier = known(channel)
    take(channel, 1)
    for _ in range(3):
        put(channel, b"x")
        take(channel, 1)
        collect_now(channel)
    with begun(earlier) as other:
        put(other, b"new")
        assert take(channel) == [b"new"]


def remove(opened: list[FaultyStore], instead: str) -> MemoryStore:
    """Remove the channel, and create another one in its place if that is what is wanted; return the store."""
    memory = opened[0].inner
    assert isinstance(memory, MemoryStore)
    memory.objects.clear()
    if instead == "another channel":
        Channel(URL, commit_interval=0).close()
    return memory


@pytest.mark.parametrize("instead", ["nothing", "another channel"])
def test_a_channel_that_was_removed_meanwhile_gets_nothing(
    opened: list[FaultyStore], channel: Channel, instead: str
) -> None:
    put(channel, b"1")
    earlier = known(channel)
    memory = remove(opened, instead)
    before = dict(memory.objects)
    with begun(earlier) as other, pytest.raises(NotAChannelError, match="is no longer at s3://bucket/orders"):
        put(other, b"2")
    assert memory.objects == before


@pytest.mark.parametrize("instead", ["nothing", "another channel"])
def test_what_a_removed_channel_remembers_of_a_batch_counts_for_nothing(
    opened: list[FaultyStore], channel: Channel, instead: str
) -> None:
    """A batch that is remembered is stored without an append, and so without the proof of one."""
    batch = SinkBatch("job", 1)
    assert channel.port().publish(Put([Frame.of(FrameType.PUT, b"one", 1)], sink=batch), 0.0)
    earlier = known(channel)
    remove(opened, instead)
    with begun(earlier) as other, pytest.raises(NotAChannelError, match="is no longer at s3://bucket/orders"):
        other.port().publish(Put([Frame.of(FrameType.PUT, b"one", 1)], sink=batch), 0.0)


def test_what_cannot_be_read_is_asked_of_the_store(opened: list[FaultyStore], channel: Channel) -> None:
    put(channel, b"1")
    earlier = known(channel)
    for state in (b"", earlier.state[:-8], earlier.state[:60] + b"?" + earlier.state[61:]):
        opened.clear()
        with begun(replace(earlier, state=state)) as other:
            assert other.range_of() == (1, 1)
        assert any(("get", IDENTITY) in asked(store) for store in opened)


def test_nothing_is_known_of_a_channel_with_a_large_state(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        put(channel, b"%d" % number)
        take(channel, 1, group=f"g{number}")
    assert channel.port().known_state() is not None
    monkeypatch.setattr(last_known, "_MOST_SENT_BYTES", 100)
    assert channel.port().known_state() is None
    monkeypatch.undo()
    monkeypatch.setattr(last_known, "_MOST_SENT", 2)
    assert channel.port().known_state() is None


def test_the_newest_checkpoint_is_known_so_that_none_is_created_too_soon(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        put(channel, b"%d" % number)
    channel.checkpoint()
    put(channel, b"5")
    newest = log_of(channel).checkpoint_number
    earlier = known(channel)
    assert (earlier.checkpoint, newest) == (5, 5)
    found = accept(earlier)
    assert found is not None and found.checkpoint.base == 5
    monkeypatch.setattr("spillable_stream.engine.store.object_checkpointing._MOST_SLOTS", 4)
    made: list[ObjectCheckpointing] = []
    monkeypatch.setattr(ObjectCheckpointing, "_create", made.append)
    with begun(earlier) as other:
        put(other, b"6")
        other.port().checkpoint_if_due()
        assert not made


def test_a_channel_on_a_disk_hands_nothing_over(tmp_path: object) -> None:
    with Channel(f"{tmp_path}/c", minimum_required_space=0) as channel:
        assert channel.port().known_state() is None
