"""A slot is read if it is the one of its number that is known, whatever is at hand, and otherwise refused."""

from __future__ import annotations

from concurrent.futures import wait
from itertools import islice, pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import UnsafeStoreError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import Tier
from spillable_stream.format.slot import NO_TOKEN
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import SlotTokens
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.staged_object import MERGED_OWNER
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, frames_of, new_channel
from tests.support.object_reads import MIB, Ranges, bodies_of, reader_of, staged


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(memory: MemoryStore) -> Ranges:
    return Ranges(memory)


def two_slots(memory: MemoryStore) -> tuple[Writer, bytes, Writer, bytes]:
    """Put a body in slot 1, put the bucket back, and put another one there; return both logs, and the slot in each."""
    channel = new_channel(memory)
    with memory.put_back():
        mine = Writer(memory, channel)
        mine.put(b"mine")
        slot = memory.objects[slot_key(1)]
    others = Writer(memory, channel)
    others.put(b"others'")
    return mine, slot, others, memory.objects[slot_key(1)]


def test_a_slot_is_refused_that_is_another_one_until_it_is_the_one_that_is_known(
    memory: MemoryStore, store: Ranges
) -> None:
    (mine, _, others, _), cache = two_slots(memory), ObjectCache(MIB)
    channel = mine.slots.channel
    (extent,) = others.state.blocks.extents(1, 1)
    known = [mine.tail.token]

    def tokens() -> SlotTokens:
        return SlotTokens((0, NO_TOKEN), {1: known[-1]})

    reader = ObjectReader(store, channel, lambda _: EVENT_SCHEMA, cache, tokens=tokens)
    for _ in range(2):
        with pytest.raises(UnsafeStoreError, match="has another event 1 than the one that was to be read"):
            bodies_of(reader, extent)
    known.append(others.tail.token)
    assert bodies_of(reader, extent) == [b"others'"]
    with memory.put_back():
        memory.objects.pop(slot_key(1))
        again = Writer(memory, channel)
        again.put(b"again")
        cache.put(slot_key(1), pa.py_buffer(memory.objects[slot_key(1)]))  # as a handle does that looks at the log
    known.append(again.tail.token)
    assert bodies_of(reader, extent) == [b"again"]


def test_a_slot_that_another_reader_has_refused_is_asked_for_anew_and_refused(
    memory: MemoryStore, store: Ranges
) -> None:
    (mine, _, others, _), cache = two_slots(memory), ObjectCache(MIB)
    channel = mine.slots.channel
    (extent,) = others.state.blocks.extents(1, 1)
    tokens = SlotTokens((0, NO_TOKEN), {1: mine.tail.token})
    for _ in range(3):
        reader = ObjectReader(store, channel, lambda _: EVENT_SCHEMA, cache, tokens=lambda: tokens)
        reader.expect([extent])
        with pytest.raises(UnsafeStoreError, match="has another event 1 than"):
            bodies_of(reader, extent)
    assert len(store.asked) == 6


def test_bytes_at_hand_of_another_slot_of_the_number_are_let_go_and_those_of_the_store_are_read(
    memory: MemoryStore, store: Ranges
) -> None:
    _, slot_of_mine, others, _ = two_slots(memory)
    cache = ObjectCache(MIB)
    cache.put(slot_key(1), pa.py_buffer(slot_of_mine))
    tokens = SlotTokens((0, NO_TOKEN), {1: others.tail.token})
    reader = ObjectReader(store, others.slots.channel, lambda _: EVENT_SCHEMA, cache, tokens=lambda: tokens)
    (extent,) = others.state.blocks.extents(1, 1)
    assert bodies_of(reader, extent) == [b"others'"]
    assert bodies_of(reader, extent) == [b"others'"]
    assert len(store.asked) == 1


def test_a_window_on_disk_of_another_slot_of_the_number_is_let_go_and_that_of_the_store_is_kept(
    memory: MemoryStore, store: Ranges, tmp_path: Path
) -> None:
    _, slot_of_mine, others, slot = two_slots(memory)
    disk, tokens = DiskCache(str(tmp_path), 1 << 30), SlotTokens((0, NO_TOKEN), {1: others.tail.token})
    at = (f"{others.slots.channel} at {store.root}", f"{slot_key(1)} {tokens.identity_of(1)}", 0)
    disk.put(*at, pa.py_buffer(slot_of_mine))
    (extent,) = others.state.blocks.extents(1, 1)
    for _ in range(2):
        reader = ObjectReader(
            store, others.slots.channel, lambda _: EVENT_SCHEMA, disk_cache=disk, tokens=lambda: tokens
        )
        assert bodies_of(reader, extent) == [b"others'"]
    assert len(store.asked) == 1
    assert (kept := disk.get(*at)) is not None and bytes(kept) == slot


def test_nothing_is_kept_on_disk_of_a_slot_that_was_refused(memory: MemoryStore, store: Ranges, tmp_path: Path) -> None:
    mine, _, others, _ = two_slots(memory)
    tokens = SlotTokens((0, NO_TOKEN), {1: mine.tail.token})
    disk = DiskCache(str(tmp_path), 1 << 30)
    reader = ObjectReader(store, mine.slots.channel, lambda _: EVENT_SCHEMA, disk_cache=disk, tokens=lambda: tokens)
    (extent,) = others.state.blocks.extents(1, 1)
    with pytest.raises(UnsafeStoreError):
        bodies_of(reader, extent)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def loaded_from(writer: Writer) -> SlotTokens:
    """Return what a handle knows that loaded a checkpoint behind a writer's log: no token of the slots in it."""
    return SlotTokens((writer.tail.number + 1, writer.tail.token), {})


def test_what_was_read_ahead_of_a_slot_is_not_used_once_the_state_was_loaded_from_another_log(
    memory: MemoryStore, store: Ranges
) -> None:
    mine, slot_of_mine, others, slot = two_slots(memory)
    known, logs = [loaded_from(mine)], [mine, others]
    memory.objects[slot_key(1)], at_hand = slot_of_mine, ObjectCache(0)
    reader = ObjectReader(store, mine.slots.channel, lambda _: EVENT_SCHEMA, at_hand, tokens=lambda: known[-1])
    extents = [log.state.blocks.extents(1, 1)[0] for log in logs]
    reader.expect([extents[0]])
    wait(reader._windows._begun.values())
    memory.objects[slot_key(1)] = slot
    known.append(loaded_from(others))
    assert bodies_of(reader, extents[1]) == [b"others'"]


def test_an_answer_from_before_the_state_was_loaded_is_not_kept_for_the_readers_after(
    memory: MemoryStore, store: Ranges
) -> None:
    mine, slot_of_mine, others, slot = two_slots(memory)
    cache, known = ObjectCache(MIB), [loaded_from(mine)]
    (extent,) = others.state.blocks.extents(1, 1)
    memory.objects[slot_key(1)] = slot_of_mine

    def reader() -> ObjectReader:
        return ObjectReader(store, mine.slots.channel, lambda _: EVENT_SCHEMA, cache, tokens=lambda: known[-1])

    def load(_: object) -> None:
        memory.objects[slot_key(1)] = slot
        cache.clear()
        known.append(loaded_from(others))

    store.after = load
    list(reader().frames(extent))
    store.after = lambda _: None
    assert bodies_of(reader(), extent) == [b"others'"]


def test_what_is_kept_of_a_slot_is_let_go_once_the_state_was_loaded_from_another_log(
    memory: MemoryStore, store: Ranges
) -> None:
    channel = new_channel(memory)

    def put_two(letter: bytes) -> Writer:
        writer = Writer(memory, channel)
        plan = AppendPlan(writer.state, Tier.DISK, start=writer.appending.begin_bytes(writer.tail))
        Put(frames_of(letter * 100) + frames_of(letter * 200)).plan(plan)
        assert writer.appending.append(writer.appending.attempt(writer.tail, plan.entries)) is None
        writer.follow()
        return writer

    with memory.put_back():
        known = [loaded_from(put_two(b"a"))]
        reader = ObjectReader(store, channel, lambda _: EVENT_SCHEMA, ObjectCache(0), tokens=lambda: known[-1])
        (whole,) = Writer(memory, channel).state.blocks.extents(1, 2)
        frames = [found.base + found.at for found in islice(reader._frames(slot_key(1), whole), 2)]
        first, second = (
            whole._replace(offset=at, first_id=event_id, last_id=event_id) for event_id, at in enumerate(frames, 1)
        )
        reader.expect([first, second])
        assert bodies_of(reader, first) == [b"a" * 100]
    known.append(loaded_from(put_two(b"b")))
    assert bodies_of(reader, second) == [b"b" * 200]


def test_a_slot_is_proven_by_the_bytes_that_are_read_and_not_by_those_that_were_fetched_before(
    memory: MemoryStore, store: Ranges
) -> None:
    channel, cache = new_channel(memory), ObjectCache(MIB)
    with memory.put_back():
        mine = Writer(memory, channel)
        mine.put(b"mine")
        (extent,) = mine.state.blocks.extents(1, 1)
        tokens = SlotTokens((0, NO_TOKEN), {1: mine.tail.token})
        reader = ObjectReader(store, channel, lambda _: EVENT_SCHEMA, cache, tokens=lambda: tokens)
        assert bodies_of(reader, extent) == [b"mine"]
    Writer(memory, channel).put(b"others'")
    cache.put(slot_key(1), pa.py_buffer(memory.objects[slot_key(1)]))
    with pytest.raises(UnsafeStoreError, match="has another event 1 than"):
        bodies_of(reader, extent)


def test_a_slot_larger_than_a_window_is_asked_for_twice_at_most_however_many_blocks_it_has(
    memory: MemoryStore, store: Ranges
) -> None:
    writer = Writer(memory, new_channel(memory))
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(36)]
    plan = AppendPlan(writer.state, Tier.DISK, start=writer.appending.begin_bytes(writer.tail))
    Put([frame for body in bodies for frame in frames_of(body)]).plan(plan)
    assert writer.appending.append(writer.appending.attempt(writer.tail, plan.entries)) is None
    writer.follow()
    assert 9 * MIB < len(memory.objects[slot_key(1)]) < 10 * MIB
    whole = writer.state.blocks.extents(1, 1)[0]._replace(last_id=len(bodies))
    frames = ObjectReader(store, writer.slots.channel, lambda _: EVENT_SCHEMA)._frames(slot_key(1), whole)
    found = [(frame.header.write_order_id, frame.base + frame.at) for frame in islice(frames, len(bodies))]
    extents = [whole._replace(offset=at, first_id=event_id, last_id=event_id) for event_id, at in found]

    store.asked.clear()
    reader = ObjectReader(store, writer.slots.channel, lambda _: EVENT_SCHEMA)
    reader.expect(extents)
    assert [body for extent in extents for body in bodies_of(reader, extent)] == bodies
    assert len(store.asked) <= 2
    assert all(end <= start for (_, _, end), (_, start, _) in pairwise(store.asked))
    assert reader._slots.last_file is None, "nothing is kept of a slot whose last block was read"


def test_an_object_of_copies_that_is_larger_than_a_window_is_asked_for_twice_at_most_however_many_blocks_it_has(
    memory: MemoryStore, store: Ranges
) -> None:
    bodies = [b"%d" % number + bytes(MIB // 4) for number in range(36)]
    whole, places = staged(memory, *bodies, owner=MERGED_OWNER)
    extents = [Extent(whole.file, at, number, number, 0, 0, 0) for number, at in enumerate(places)]
    reader = reader_of(store)
    reader.expect(extents)
    assert [body for extent in extents for body in bodies_of(reader, extent)] == bodies
    assert len(store.asked) <= 2
    assert all(end <= start for (_, _, end), (_, start, _) in pairwise(store.asked))
    assert reader._slots.last_file is None, "beside the window with which the next read may continue"
