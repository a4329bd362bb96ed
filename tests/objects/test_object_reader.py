"""Events are read exactly, from windows of any size, with no byte asked for twice."""

from __future__ import annotations

import time
from concurrent.futures import wait
from itertools import islice, pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import CorruptionError, DataLossError, StorageError, UnsafeStoreError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import HEADER_SIZE_BYTES
from spillable_stream.format.slot import NO_TOKEN
from spillable_stream.objects import object_reader
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import SlotTokens
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.object_reader import ObjectReader, object_key
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.staged_object import StagedObjectWriter
from tests.support.faulty_store import Fault, FaultyStore, once
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, frames_of, new_channel

CHANNEL = "0f0e0d0c-0b0a-0908-0706-050403020100"
MIB = 1 << 20


class Ranges(FaultyStore):
    """Remembers which bytes were asked for.

    Attributes:
        asked: keys, first bytes and ends.
    """

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory)
        self.asked: list[tuple[str, int, int]] = []

    def get_range(self, key: str, start: int, end: int) -> object:  # type: ignore[override]
        self.asked.append((key, start, end))
        return super().get_range(key, start, end)


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(memory: MemoryStore) -> Ranges:
    return Ranges(memory)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(object_reader, "_WINDOW_BYTES", 4096)
    return 4096


def reader_of(store: Ranges) -> ObjectReader:
    return ObjectReader(store, CHANNEL, lambda _: EVENT_SCHEMA)


def staged(memory: MemoryStore, *bodies: bytes, first_id: int = 1) -> tuple[Extent, list[int]]:
    """Stage events with a frame each; return where they are, and where each frame begins."""
    writer, at = StagedObjectWriter(memory, CHANNEL, 5), list[int]()
    for body in bodies:
        at.append(writer._end)
        writer.write(frames_of(body))
    last_id = first_id + len(bodies) - 1
    return Extent(writer.finish().name, 0, first_id, last_id, first_id, 1, 1), at


def bodies_of(reader: ObjectReader, extent: Extent) -> list[bytes]:
    return [body for read in reader.read(extent) for body in read.batch.column("body").to_pylist()]


# ── windows ─────────────────────────────────────────────────────────────────────────────────────


def test_an_event_larger_than_a_window_is_read_with_those_beside_it(memory: MemoryStore, store: Ranges) -> None:
    bodies = [b"before", bytes(range(256)) * (20 * MIB // 256), b"after"]
    extent, _ = staged(memory, *bodies)
    assert bodies_of(reader_of(store), extent) == bodies
    assert sorted(start for _, start, _ in store.asked) == [0, 8 * MIB, 16 * MIB]


@pytest.mark.parametrize("size_bytes", [10, 700, 4096 - 2 * HEADER_SIZE_BYTES, 5000, 9000])
def test_frames_that_lie_across_windows_are_read_and_no_byte_is_asked_for_twice(
    memory: MemoryStore, store: Ranges, small_windows: int, size_bytes: int
) -> None:
    bodies = [bytes([number]) * (size_bytes + number % 3) for number in range(40)]
    extent, _ = staged(memory, *bodies)
    assert bodies_of(reader_of(store), extent) == bodies
    ranges = sorted((start, end) for _, start, end in store.asked)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    assert ranges[-1][0] <= len(memory.objects[str(extent.file)]) + small_windows


def test_any_part_of_an_extent_is_read(memory: MemoryStore, store: Ranges, small_windows: int) -> None:
    bodies = [bytes([number]) * 500 for number in range(20)]
    extent, _ = staged(memory, *bodies, first_id=101)
    for first in range(101, 121, 3):
        for last in range(first, 121, 4):
            part = extent._replace(first_id=first, last_id=last)
            assert bodies_of(reader_of(store), part) == bodies[first - 101 : last - 100]


def test_a_small_object_is_fetched_once_however_often_it_is_read(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, b"0", b"1", b"2")
    reader = reader_of(store)
    for event_id in (1, 3, 2, 1):
        assert bodies_of(reader, extent._replace(first_id=event_id, last_id=event_id)) == [b"%d" % (event_id - 1)]
    assert len(store.asked) == 1


@pytest.mark.usefixtures("one_block")
def test_the_events_of_a_slot_are_read_from_its_key(memory: MemoryStore, store: Ranges) -> None:
    writer = Writer(memory, new_channel(memory))
    writer.put(b"0", b"1")
    (extent,) = writer.state.blocks.extents(1, 2)
    assert object_key(extent.file) == slot_key(1)
    reader = ObjectReader(store, writer.slots.channel, lambda _: EVENT_SCHEMA)
    assert bodies_of(reader, extent) == [b"0", b"1"]


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
        with pytest.raises(UnsafeStoreError, match="has other events 1 to 1 than those that were to be read"):
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
        with pytest.raises(UnsafeStoreError, match="has other events 1 to 1"):
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
    wait(reader._begun.values())
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
        frames = [at for _, _, at in islice(reader._frames(slot_key(1), whole), 2)]
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
    with pytest.raises(UnsafeStoreError, match="has other events 1 to 1"):
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
    found = [(header.write_order_id, at) for header, _, at in islice(frames, len(bodies))]
    extents = [whole._replace(offset=at, first_id=event_id, last_id=event_id) for event_id, at in found]

    store.asked.clear()
    reader = ObjectReader(store, writer.slots.channel, lambda _: EVENT_SCHEMA)
    reader.expect(extents)
    assert [body for extent in extents for body in bodies_of(reader, extent)] == bodies
    assert len(store.asked) <= 2
    assert all(end <= start for (_, _, end), (_, start, _) in pairwise(store.asked))
    assert reader._last is None, "nothing is kept of a slot whose last block was read"


# ── what is fetched ahead ───────────────────────────────────────────────────────────────────────


def test_what_is_expected_is_asked_for_ahead_and_not_again(memory: MemoryStore, store: Ranges) -> None:
    extents = [staged(memory, b"%d" % number, first_id=number + 1)[0] for number in range(20)]
    reader = reader_of(store)
    reader.expect(extents)
    for future in list(reader._begun.values()):
        future.result()
    assert {key for key, _, _ in store.asked} == {extent.file for extent in extents[:8]}
    assert [bodies_of(reader, extent) for extent in extents] == [[b"%d" % number] for number in range(20)]
    assert len(store.asked) == len(set(store.asked)) == 20


@pytest.mark.parametrize("first_id", [1, 15])
def test_the_next_window_is_asked_for_before_the_first_one_is_decoded(
    memory: MemoryStore, store: Ranges, monkeypatch: pytest.MonkeyPatch, first_id: int
) -> None:
    monkeypatch.setattr(object_reader, "_WINDOW_BYTES", 4 * MIB)
    extent, at = staged(memory, *[bytes(MIB)] * 32)

    def windows() -> list[tuple[int, int]]:
        for future in list(reader._begun.values()):
            future.result()
        return sorted((start, end) for _, start, end in store.asked if end - start >= MIB)

    reader = reader_of(store)
    reads = reader.read(extent._replace(first_id=first_id, last_id=first_id + 12))
    next(reads)
    assert len(windows()) == 2
    assert sum(1 for _ in reads) == 12
    assert all(end <= start for (_, end), (start, _) in pairwise(windows()))
    assert len(windows()) == 4 and windows()[-1][1] <= at[first_id + 13], "at most a frame behind the last event"


class SlowCache(DiskCache):
    """A cache on a disk that takes a moment for all windows but the first one."""

    def get(self, channel: str, key: str, offset: int) -> pa.Buffer | None:
        if offset:
            time.sleep(0.1)
        return super().get(channel, key, offset)


def test_a_damaged_window_ahead_that_ends_while_the_cache_is_passed_by_is_not_used(
    memory: MemoryStore, store: Ranges, tmp_path: Path, small_windows: int
) -> None:
    bodies = [b"%d" % i * 1000 for i in range(8)]
    extent, at = staged(memory, *bodies)
    key = str(extent.file)
    whole = memory.objects[key]
    damaged = bytearray(whole)
    for offset in (at[1], at[5]):
        damaged[offset + HEADER_SIZE_BYTES + 30] ^= 1
    assert at[1] < small_windows < at[5]
    kept = DiskCache(str(tmp_path), 1 << 30)
    name = f"{CHANNEL} at {store.root}"
    for offset in range(0, len(damaged), small_windows):
        kept.put(name, key, offset, pa.py_buffer(bytes(damaged[offset : offset + small_windows])))
    cache = SlowCache(str(tmp_path), 1 << 30)
    assert bodies_of(ObjectReader(store, CHANNEL, lambda _: EVENT_SCHEMA, disk_cache=cache), extent) == bodies


def test_windows_of_other_objects_may_come_while_the_cache_is_passed_by(memory: MemoryStore, store: Ranges) -> None:
    class Late(str):
        """The key of a window: another one comes whenever it is looked at."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            reader._kept["another", "window", len(reader._kept)] = False
            return super().__eq__(other)

    reader = reader_of(store)
    reader._kept |= {(Late("some"), "window", 0): False, (Late("one"), "window", 1): False}
    assert not reader._forget_kept("a")
    assert len(reader._kept) > 2


def test_what_was_expected_and_is_not_read_does_not_add_up(memory: MemoryStore, store: Ranges) -> None:
    reader = reader_of(store)
    for number in range(10):
        reader.expect([staged(memory, b"x", first_id=10 * number + i)[0] for i in range(1, 9)])
    assert len(reader._begun) <= 16


def test_a_request_ahead_that_failed_fails_the_read_that_needs_it_and_the_next_one_asks_again(
    memory: MemoryStore, store: Ranges
) -> None:
    extent, _ = staged(memory, b"0")
    store.schedule = once("get_range", Fault.UNAVAILABLE)
    reader = reader_of(store)
    reader.expect([extent])
    with pytest.raises(StorageError, match="unavailable"):
        bodies_of(reader, extent)
    assert bodies_of(reader, extent) == [b"0"]


def test_a_reader_that_was_closed_asks_again(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, b"0")
    reader = reader_of(store)
    reader.expect([extent])
    reader.close()
    assert (reader._expected, len(reader._begun)) == ([], 0)
    assert bodies_of(reader, extent) == [b"0"]


# ── what can not be read ────────────────────────────────────────────────────────────────────────


def test_an_object_that_is_gone_is_data_loss_that_names_its_events(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, b"0", b"1", first_id=5)
    memory.objects.clear()
    with pytest.raises(DataLossError, match="the events 5 to 6 are gone") as caught:
        bodies_of(reader_of(store), extent)
    assert caught.value.path == f"{memory.root}/{extent.file}"


@pytest.mark.parametrize("at", [20, HEADER_SIZE_BYTES + 30, 500], ids=["header", "payload", "body"])
def test_damage_names_object_offset_and_events_and_what_is_before_it_is_read(
    memory: MemoryStore, store: Ranges, small_windows: int, at: int
) -> None:
    extent, offsets = staged(memory, *[bytes([number]) * 700 for number in range(20)])
    data = bytearray(memory.objects[str(extent.file)])
    data[offsets[12] + at] ^= 1
    memory.objects[str(extent.file)] = bytes(data)
    read = list[int]()
    with pytest.raises(CorruptionError, match="a frame is damaged among the events 1 to 20") as caught:
        read.extend(batch.first_id for batch in reader_of(store).read(extent))
    assert (caught.value.path, caught.value.offset) == (f"{memory.root}/{extent.file}", offsets[12])
    whole = extent._replace(last_id=12)
    assert len(bodies_of(reader_of(store), whole)) == 12


@pytest.mark.parametrize("kept_bytes", [-8, -700, 20])
def test_an_object_that_ends_too_soon_is_damage_and_no_endless_read(
    memory: MemoryStore, store: Ranges, small_windows: int, kept_bytes: int
) -> None:
    extent, _ = staged(memory, *[bytes(700)] * 10)
    memory.objects[str(extent.file)] = memory.objects[str(extent.file)][:kept_bytes]
    with pytest.raises(CorruptionError) as caught:
        bodies_of(reader_of(store), extent)
    assert not isinstance(caught.value, DataLossError)


def test_an_extent_that_does_not_hold_its_events_is_damage(memory: MemoryStore, store: Ranges) -> None:
    extent, offsets = staged(memory, b"0", b"1", b"2")
    with pytest.raises(CorruptionError, match="event 1 is not where the channel's state says"):
        bodies_of(reader_of(store), extent._replace(offset=offsets[1]))


# ── frames as they are ──────────────────────────────────────────────────────────────────────────


def test_frames_are_those_that_the_extent_covers(memory: MemoryStore, store: Ranges) -> None:
    extent, _ = staged(memory, *[b"%d" % number for number in range(6)])
    found = list(reader_of(store).frames(extent._replace(first_id=2, last_id=4)))
    assert [(header.write_order_id, header.count) for header, _ in found] == [(1, 1), (2, 1), (3, 1)]
    assert all(isinstance(payload, pa.Buffer) and len(payload) == header.length for header, payload in found)
