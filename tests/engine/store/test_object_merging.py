from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from spillable_stream import Channel, DataLossError, Event, StorageError, verify
from spillable_stream.engine.store import object_merging
from spillable_stream.engine.store.object_merging import Merge, ObjectMerging
from spillable_stream.objects.slots import slot_key
from spillable_stream.state.block import Block
from tests.support.events import ids, numbered, peek, put, take
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, collect_now, stores_in_memory
from tests.support.store_limits import SetLimits


@pytest.fixture
def stores() -> Iterator[dict[str, MemoryStore]]:
    with stores_in_memory() as stores:
        yield stores


@pytest.fixture(autouse=True)
def four_slots_are_many(set_limits: SetLimits) -> None:
    set_limits(many_slots=4, quiet_seconds=0)


def channel_of(puts: int, **options: object) -> Channel:
    """Return a channel with so many transactions of two events, of which four are worth a copy."""
    channel = Channel(URL, commit_interval=0, gc_delay=0, **options)
    for i in range(puts):
        put(channel, b"%d a" % i, b"%d b" % i)
    return channel


def events(channel: Channel) -> list[Event]:
    with channel.take_transaction() as tx:
        found = tx.take_many(100)
        tx.rollback()
        return found


def files(channel: Channel) -> set[int | str]:
    return {block.file for block in channel.engine().state.blocks}


def test_small_slots_are_copied_into_one_object_and_read_from_it(stores: dict[str, MemoryStore]) -> None:
    with channel_of(6) as channel:
        before = peek(channel)
        channel.checkpoint()
        (merged,) = [file for file in files(channel) if isinstance(file, str)]
        assert "-merged.0." in merged
        assert peek(channel) == before
    with Channel(URL) as again:
        assert peek(again) == before
        assert [e.transaction_id for e in events(again)] == [n for n in range(1, 7) for _ in "ab"]


def test_takes_that_begin_within_the_copy_ask_for_it_once(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, get_range = list[str](), MemoryStore.get_range

    def noted(store: MemoryStore, key: str, start: int, end: int) -> bytes:
        keys.append(key)
        return get_range(store, key, start, end)

    monkeypatch.setattr(MemoryStore, "get_range", noted)
    monkeypatch.setattr(object_merging, "BLOCK_BYTES", 1)
    with channel_of(6) as channel:
        channel.checkpoint()
        take(channel, 4)
    with Channel(URL) as again:
        keys.clear()
        assert [take(again, 2) for _ in range(4)] == [[b"%d a" % i, b"%d b" % i] for i in range(2, 6)]
        assert len([key for key in keys if "-merged." in key]) == 1


def test_few_slots_stay(stores: dict[str, MemoryStore]) -> None:
    with channel_of(3) as channel:
        channel.checkpoint()
        assert not any(isinstance(file, str) for file in files(channel))


def test_slots_that_are_young_stay(stores: dict[str, MemoryStore], set_limits: SetLimits) -> None:
    with channel_of(6) as channel:
        set_limits(quiet_seconds=60)
        channel.checkpoint()
        assert not any(isinstance(file, str) for file in files(channel))


def copied_and_then(channel: Channel, then: Callable[[], object]) -> ObjectMerging:
    """Return what merges a channel's slots, and does something else between the copy and its commit."""
    merging = channel.engine().checkpointing.merging
    copied = merging._copied

    def copied_and_done(*args: object, **named: object) -> object:
        found = copied(*args, **named)
        then()
        return found

    merging._copied = copied_and_done  # type: ignore[method-assign]
    channel.consumer("default")
    return merging


@pytest.mark.parametrize("taken", [1, 4, 5])
def test_events_that_were_taken_meanwhile_are_left_out_and_the_others_are_found_in_the_copy(
    stores: dict[str, MemoryStore], taken: int
) -> None:
    with channel_of(6) as channel:
        assert copied_and_then(channel, lambda: take(channel, taken)).merge()
        assert all(isinstance(file, str) for file in files(channel))
        left = [b"%d %s" % (i, end) for i in range(6) for end in (b"a", b"b")][taken:]
        assert peek(channel) == left
    assert verify(URL).healthy
    with Channel(URL) as again:
        assert take(again) == left
        again.checkpoint()
        assert not files(again)


def test_the_copy_is_not_used_where_all_events_were_taken_meanwhile(stores: dict[str, MemoryStore]) -> None:
    with channel_of(6) as channel:
        assert not copied_and_then(channel, lambda: take(channel, 12)).merge()
        assert not files(channel)


def test_events_that_another_handle_merged_meanwhile_keep_the_copy_from_being_used(
    stores: dict[str, MemoryStore],
) -> None:
    with channel_of(6) as channel, Channel(URL) as other:
        before = peek(channel)
        assert not copied_and_then(channel, other.checkpoint).merge()
        assert len(files(channel)) == 1
        assert peek(channel) == before


def test_small_slots_are_copied_though_large_ones_lie_between_them(stores: dict[str, MemoryStore]) -> None:
    with channel_of(3) as channel:
        put(channel, b"large" * 300_000)
        put(channel, b"3 a")
        put(channel, b"more" * 300_000)
        put(channel, b"4 a")
        before = peek(channel)
        large = {block.file for block in channel.engine().state.blocks if block.payload_bytes > 1_000_000}
        channel.checkpoint()
        assert len(large) == 2 and large < files(channel)
        assert len(files(channel)) == 3
        assert peek(channel) == before


def test_a_slot_of_many_blocks_is_as_large_as_they_are_together(stores: dict[str, MemoryStore]) -> None:
    with channel_of(0) as channel:
        state = channel.engine().state.copy()
        for number in range(16):
            where = number // 4 + 1, number % 4 * 300_000  # four slots of 1.2 MB
            state.blocks.disk.insert(Block(number + 1, 1, *where, 300_000, 1))
        assert channel.engine().checkpointing.merging._worth_merging(state) == []


def test_slots_of_many_small_events_are_small(stores: dict[str, MemoryStore]) -> None:
    with channel_of(0, transaction_capacity=30_000) as channel:
        for _ in range(4):
            put(channel, *[b"x"] * 30_000)
        assert all(len(data) < 1 << 19 for data in stores[URL].objects.values())
        channel.checkpoint()
        (merged,) = files(channel)
        assert isinstance(merged, str)
        assert sum(batch.num_rows for batch in channel.read()) == 120_000


def test_a_copy_is_small_enough_for_one_request(stores: dict[str, MemoryStore]) -> None:
    with channel_of(0) as channel:
        for _ in range(9):
            put(channel, *[b"x" * 1000] * 900)
        before = peek(channel)
        channel.checkpoint()
        merged = [key for key in stores[URL].objects if "-merged." in key]
        assert 4 << 20 < len(stores[URL].objects[merged[0]]) < 8 << 20
        assert peek(channel) == before


def test_a_checkpoint_makes_as_many_copies_as_small_slots_are_worth(stores: dict[str, MemoryStore]) -> None:
    with channel_of(0) as channel:
        for _ in range(25):
            put(channel, *[b"x" * 1000] * 700)
        before = peek(channel)
        channel.checkpoint()
        assert len(files(channel)) == 3 and all(isinstance(file, str) for file in files(channel))
        assert peek(channel) == before


def test_a_copy_that_a_collector_may_have_removed_is_not_used(stores: dict[str, MemoryStore]) -> None:
    with channel_of(6) as channel:
        engine = channel.engine()
        blocks = list(engine.state.blocks)
        merged = engine.checkpointing.merging._copied(blocks, 0, is_dated=False)
        request = Merge(merged, blocks)
        engine.state.trimmed = engine.state.trimmed._replace(births=engine.log.tail.number + 1)
        with engine.committing():
            engine.appender.append_alone(request)
        assert not request.done


def test_what_was_merged_and_taken_is_deleted(stores: dict[str, MemoryStore]) -> None:
    with channel_of(6) as channel:
        channel.checkpoint()
        assert any("-merged." in key for key in stores[URL].objects)
        take(channel, 12)
        channel.checkpoint()
        channel.checkpoint()
        assert not any("-merged." in key for key in stores[URL].objects)


def test_kept_events_are_found_by_their_time_after_a_merge(stores: dict[str, MemoryStore]) -> None:
    with channel_of(6, retention_ms=3_600_000) as channel:
        (middle,) = [e for e in events(channel) if e.write_order_id == 7]
        take(channel)
        channel.checkpoint()
        assert any(isinstance(file, str) for file in files(channel))
        assert channel.seek("default", datetime.fromtimestamp(middle.timestamp, UTC)) == 7
        assert ids(channel) == list(range(7, 13))


def test_a_merge_that_fails_leaves_everything_as_it_was(stores: dict[str, MemoryStore]) -> None:
    with channel_of(6) as channel:
        before = peek(channel)

        def refused(key: str) -> None:
            raise StorageError("no")

        channel.engine().log.store.upload = refused  # type: ignore[method-assign,assignment]
        with pytest.raises(StorageError):
            channel.checkpoint()
        del channel.engine().log.store.upload
        assert peek(channel) == before
        put(channel, *numbered(0, 1))


def test_a_checkpoint_is_not_a_loss_where_another_handle_merged_and_collected_what_it_was_about_to_copy(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    with channel_of(6) as channel, Channel(URL) as other:
        merging = channel.engine().checkpointing.merging
        copied = merging._copied

        def slept_before_it_copied(*args: object, **named: object) -> object:
            other.checkpoint()
            collect_now(other)
            channel.engine().log.cache.clear()
            return copied(*args, **named)

        monkeypatch.setattr(merging, "_copied", slept_before_it_copied)
        channel.checkpoint()
        assert slot_key(6) not in stores[URL].objects
        assert len(peek(channel)) == 12


def test_a_checkpoint_names_events_that_are_missing_and_should_be_there(stores: dict[str, MemoryStore]) -> None:
    with channel_of(6) as channel:
        channel.engine().log.cache.clear()
        del stores[URL].objects[slot_key(3)]
        with pytest.raises(DataLossError, match="the events 5 to 6 are gone"):
            channel.checkpoint()


@pytest.mark.parametrize("begun", [False, True])
def test_events_that_another_handle_merges_and_whose_slots_go_are_read_from_the_object(
    stores: dict[str, MemoryStore], begun: bool
) -> None:
    with channel_of(14, retention_ms=3_600_000) as channel, Channel(URL, readonly=True) as reader:
        reading = reader.read(max_bytes=1)
        found = [next(reading)] if begun else []
        channel.checkpoint()
        collect_now(channel)
        assert slot_key(14) not in stores[URL].objects
        bodies = [body for batch in [*found, *reading] for body in batch["body"].to_pylist()]
    assert bodies == [b"%d %s" % (i, letter) for i in range(14) for letter in (b"a", b"b")]
