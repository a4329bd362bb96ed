"""What is deleted, in which order, and when by the collector's own clock."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spillable_stream.errors import NotAChannelError
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.checkpoints import Checkpoints, checkpoint_key
from spillable_stream.objects.collector import Collector
from spillable_stream.objects.slots import LOG, Slots, slot_key
from spillable_stream.objects.staged_object import segment_key
from spillable_stream.objects.store import ObjectInfo, StoreError
from spillable_stream.objects.void_slots import void_key, void_slots
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Trimmed
from tests.support.faulty_store import Fault, FaultyStore, Request, once
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import FakeTime, Writer, new_channel, new_state

OLDER, NEWEST = 6, 9


@pytest.fixture
def memory() -> MemoryStore:
    """A log of the slots 0 to 9, with three checkpoints."""
    memory = MemoryStore()
    writer = Writer(memory, new_channel(memory))
    for number in range(1, NEWEST + 1):
        writer.put(b"%d" % number)
        if number in (3, 6, 9):
            writer.checkpoints.write(writer.tail, writer.state)
    return memory


class Collecting:
    """A collector, its store and its clock."""

    def __init__(self, memory: MemoryStore, channel: str = "it deletes by names, so no bytes are read") -> None:
        self.store = FaultyStore(memory)
        self.time = FakeTime()
        self.looks = list[float]()
        self.pause_seconds = 0.0  # behind each
        slots, checkpoints = Slots(self.store, channel), Checkpoints(self.store, channel)
        self.cache = ObjectCache(1 << 20)
        self.collector = Collector(self.store, slots, checkpoints, self.cache, self._look, self.time.monotonic)

    def _look(self) -> None:
        self.looks.append(self.time.now)
        self.time.now += self.pause_seconds

    def collect(
        self, state: ChannelState, after_seconds: float = 0.0, checkpoints: tuple[int, int] = (OLDER, NEWEST)
    ) -> None:
        self.time.now += after_seconds
        self.collector.collect(state.trimmed, state.blocks.segments(), *checkpoints)

    def deleted(self) -> list[str]:
        return [request.key for request in self.store.requests if request.kind == "delete"]


@pytest.fixture
def collecting(memory: MemoryStore) -> Collecting:
    return Collecting(memory)


def trimmed(through: int, births: int = 0, deleted: int = -1) -> ChannelState:
    state = new_state()
    state.trimmed = Trimmed(through, births, deleted)
    return state


def slots_of(memory: MemoryStore) -> list[int]:
    return sorted(int(key[4:]) for key in memory.objects if key.startswith("log/0") and "." not in key)


def test_slots_go_in_ascending_order_once_they_were_trimmed_for_the_delay(
    collecting: Collecting, memory: MemoryStore
) -> None:
    state = trimmed(4)
    collecting.collect(state)
    collecting.collect(state, after_seconds=3599)
    assert (collecting.deleted(), slots_of(memory)) == ([], list(range(10)))
    collecting.collect(state, after_seconds=1)
    assert [key for key in collecting.deleted() if key.startswith("log/")] == [slot_key(n) for n in range(5)]
    assert slots_of(memory) == list(range(5, 10))
    assert collecting.collector.deleted_through == 4


def test_what_says_that_slots_are_void_goes_behind_them(collecting: Collecting, memory: MemoryStore) -> None:
    collecting.collector.gc_delay_seconds = 0
    for number in (3, 7):
        memory.objects[void_key(number, bytes(16))] = b"void"
    collecting.collect(trimmed(4))
    assert void_slots(memory.objects) == {(7, bytes(16))}
    assert collecting.deleted().index(void_key(3, bytes(16))) > collecting.deleted().index(slot_key(4))


def test_what_says_that_slots_are_void_stays_where_another_channel_is_there_by_now(
    collecting: Collecting, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This handle slept behind its question, and has listed the other channel's log."""
    collecting.collector.gc_delay_seconds = 0
    memory.objects[void_key(3, bytes(16))] = b"void"

    def ask() -> None:
        if any(request.kind == "list" and request.key == LOG for request in collecting.store.requests):
            raise NotAChannelError("another channel is there")

    monkeypatch.setattr(collecting.collector, "_require_there", ask)
    with pytest.raises(NotAChannelError):
        collecting.collect(trimmed(4))
    assert void_slots(memory.objects) == {(3, bytes(16))}


def test_a_later_trim_waits_for_a_delay_of_its_own(collecting: Collecting, memory: MemoryStore) -> None:
    collecting.collect(trimmed(2))
    collecting.collect(trimmed(5), after_seconds=3000)
    collecting.collect(trimmed(5), after_seconds=600)
    assert slots_of(memory) == list(range(3, 10))
    collecting.collect(trimmed(5), after_seconds=3000)
    assert slots_of(memory) == list(range(6, 10))


def test_neither_the_newest_slot_nor_that_of_the_newest_checkpoint_goes_whatever_was_trimmed(
    collecting: Collecting, memory: MemoryStore
) -> None:
    collecting.collector.gc_delay_seconds = 0
    collecting.collect(trimmed(1000))
    assert slots_of(memory) == [NEWEST]


def test_a_slot_that_cannot_be_deleted_keeps_those_after_it(collecting: Collecting, memory: MemoryStore) -> None:
    """A hole behind a slot would be a proof for a writer that slept."""
    collecting.collector.gc_delay_seconds = 0

    collecting.store.schedule = once("delete", Fault.UNAVAILABLE, slot_key(2))
    with pytest.raises(StoreError):
        collecting.collect(trimmed(4))
    assert slots_of(memory) == list(range(2, 10))
    collecting.store.schedule = None
    collecting.collect(trimmed(5))
    assert slots_of(memory) == list(range(6, 10))


@pytest.mark.parametrize("refused", [slot_key(2), checkpoint_key(3)])
def test_what_the_store_refused_to_let_go_goes_with_the_next_collection(
    collecting: Collecting, memory: MemoryStore, refused: str
) -> None:
    collecting.collect(trimmed(4))
    collecting.store.schedule = once("delete", Fault.REFUSED, refused)
    with pytest.raises(StoreError):
        collecting.collect(trimmed(4), after_seconds=3600)
    assert refused in memory.objects
    collecting.store.schedule = None
    collecting.collect(trimmed(4), after_seconds=1)
    assert refused not in memory.objects and slots_of(memory) == list(range(5, 10))


def test_what_the_log_says_was_deleted_is_not_deleted_again(collecting: Collecting, memory: MemoryStore) -> None:
    collecting.collector.gc_delay_seconds = 0
    for number in range(4):
        memory.delete(slot_key(number))
    collecting.collect(trimmed(5, deleted=3))
    assert [key for key in collecting.deleted() if key.startswith("log/")] == [slot_key(4), slot_key(5)]


def test_what_this_process_knows_to_be_left_goes_after_the_delay_though_no_collection_ever_saw_it_named(
    collecting: Collecting, memory: MemoryStore
) -> None:
    key = segment_key(3, "delayed", 0)
    memory.objects[key] = b"nothing waits in it"
    left = [key]
    collecting.collector.add_left(left)
    assert left == []
    collecting.collect(trimmed(0), after_seconds=3599)
    assert key in memory.objects
    collecting.collect(trimmed(0), after_seconds=1)
    assert key not in memory.objects
    assert collecting.deleted().count(key) == 1


def test_what_writers_that_slept_left_behind_goes_and_no_other_object(
    collecting: Collecting, memory: MemoryStore
) -> None:
    collecting.collector.gc_delay_seconds = 0
    collecting.collect(trimmed(4))
    memory.objects[slot_key(1)] = memory.objects[slot_key(4)] = b"a writer that slept"
    memory.objects["log/notes.txt"] = memory.objects["segments/notes.txt"] = b"somebody's"
    memory.objects["checkpoints/000"] = memory.objects["log/²"] = memory.objects["log/5"] = b"somebody's"
    collecting.collect(trimmed(5))
    assert [n for n in range(10) if slot_key(n) in memory.objects] == list(range(6, 10))
    assert {"log/notes.txt", "log/²", "log/5", "segments/notes.txt", "checkpoints/000"} <= memory.objects.keys()


def test_all_checkpoints_but_the_two_newest_go(collecting: Collecting, memory: MemoryStore) -> None:
    collecting.collector.gc_delay_seconds = 0
    collecting.collect(trimmed(4))
    assert sorted(key for key in memory.objects if key.startswith("checkpoints/")) == [
        f"checkpoints/{number:020d}" for number in (6, 9)
    ]


def test_later_checkpoints_that_are_another_channels_let_none_go_that_is_needed(
    collecting: Collecting, memory: MemoryStore
) -> None:
    """A handle that is paused may write one where its channel was removed, and another one made."""
    strays = [f"checkpoints/{number:020d}" for number in (NEWEST + 3, NEWEST + 10)]
    memory.objects |= dict.fromkeys(strays, b"another channel's")
    collecting.collector.gc_delay_seconds = 0
    collecting.collect(trimmed(4))
    assert sorted(key for key in memory.objects if key.startswith("checkpoints/")) == [
        *(f"checkpoints/{number:020d}" for number in (6, 9)),
        *strays,
    ]


def test_checkpoints_between_that_are_another_channels_do_not_count_as_the_two_that_stay(
    collecting: Collecting, memory: MemoryStore
) -> None:
    memory.objects |= {f"checkpoints/{number:020d}": b"another channel's" for number in (7, 8)}
    collecting.collector.gc_delay_seconds = 0
    collecting.collect(trimmed(4))
    assert collecting.collector._checkpoints.numbers() == [OLDER, 7, 8, NEWEST]


def test_none_goes_where_only_the_newest_is_known(collecting: Collecting) -> None:
    collecting.collector.gc_delay_seconds = 0
    collecting.collect(trimmed(4), checkpoints=(0, NEWEST))
    assert collecting.collector._checkpoints.numbers() == [3, OLDER, NEWEST]


@pytest.mark.parametrize(("seconds", "looks"), [(0.03, 2), (1.0, 9), (4.0, 20), (6.0, 40)])
def test_the_channel_is_asked_for_every_32_slots_and_every_5_seconds(seconds: float, looks: int) -> None:
    memory = MemoryStore()
    memory.objects |= {slot_key(number): b"" for number in range(41)}
    collecting = Collecting(memory)
    collecting.collector.gc_delay_seconds = 0

    def take_long(request: Request) -> None:
        collecting.time.now += seconds if request.kind == "delete" else 0

    collecting.store.after = take_long
    collecting.collect(trimmed(39), checkpoints=(40, 40))
    assert (slots_of(memory), len(collecting.looks)) == ([40], looks)


def test_nothing_is_deleted_after_a_pause_behind_the_question_whether_the_channel_is_there(
    collecting: Collecting, memory: MemoryStore
) -> None:
    collecting.collector.gc_delay_seconds = 0
    collecting.pause_seconds = 5
    collecting.collect(trimmed(4))
    assert (collecting.deleted(), collecting.collector.deleted_through) == ([], -1)
    collecting.pause_seconds = 0
    collecting.collect(trimmed(4))
    assert slots_of(memory) == list(range(5, 10))


def test_what_a_pause_leaves_of_old_checkpoints_goes_with_the_next_collection(
    collecting: Collecting, memory: MemoryStore
) -> None:
    collecting.collector.gc_delay_seconds = 0
    checkpoints = collecting.collector._checkpoints.numbers
    before = checkpoints()

    def pause_from_now_on(request: Request) -> None:
        collecting.pause_seconds = 5 if request.key == "checkpoints/" else 0

    collecting.store.after = pause_from_now_on
    collecting.collect(trimmed(4))
    assert (slots_of(memory), checkpoints()) == (list(range(5, 10)), before)
    collecting.store.after = lambda _: None
    collecting.pause_seconds = 0
    collecting.collect(trimmed(4))
    assert checkpoints() == [OLDER, NEWEST] != before


def in_segment(state: ChannelState, key: str) -> ChannelState:
    """Return the state with an event in a segment."""
    state.blocks.add(Block(file=key, offset=0, first_id=1, count=1, payload_bytes=8, time_us=1))
    return state


def test_segments_that_no_event_is_in_go_if_nobody_may_adopt_them_any_more(
    collecting: Collecting, memory: MemoryStore
) -> None:
    collecting.collector.gc_delay_seconds = 0
    keys = {birth: segment_key(birth, "query", 1) for birth in (2, 3, 4)}
    named = segment_key(1, "query", 1)
    for key in (*keys.values(), named):
        memory.objects[key] = b"events"
    collecting.collect(in_segment(trimmed(4, births=4), named))
    assert {key for key in memory.objects if key.startswith("segments/")} == {keys[4], named}


def test_a_segment_that_was_taken_goes_after_the_delay_without_a_listing(
    collecting: Collecting, memory: MemoryStore
) -> None:
    key = segment_key(5, "query", 1)
    memory.objects[key] = b"events"
    collecting.cache.put(key, pa.py_buffer(b"events"))
    collecting.collect(in_segment(new_state(), key))
    collecting.collect(new_state(), after_seconds=10)
    collecting.collect(new_state(), after_seconds=3599)
    assert key in memory.objects
    collecting.store.schedule = once("delete", Fault.REFUSED, key)
    with pytest.raises(StoreError):
        collecting.collect(new_state(), after_seconds=1)
    collecting.store.schedule = None
    collecting.collect(new_state())
    assert key not in memory.objects and collecting.cache.get(key) is None
    assert collecting.store.counts["list"] == 0


@pytest.mark.parametrize(("seconds", "expected"), [(0, 30), (5, 20), (15, 10), (25, 0), (1000, 0)])
def test_births_are_by_the_newest_slot_so_long_ago_and_none_where_that_is_not_known(
    collecting: Collecting, seconds: float, expected: int
) -> None:
    for number in (10, 20, 30):
        collecting.collector.sample_tail(number)
        collecting.time.now += 10 if number < 30 else 0
    assert collecting.collector.births(seconds) == expected


# ── what happened before the process began ──────────────────────────────────────────────────────


def after(seconds: dict[int, float]) -> tuple[Collecting, MemoryStore]:
    """Return a collector of a process that has just begun, with a log that others left.

    Args:
        seconds: after which slots there is a checkpoint, and when it was written by the store's clock. Each says that
            the slots before the one before it may go.
    """
    memory = MemoryStore()
    channel = new_channel(memory)
    writer, before = Writer(memory, channel), -1
    for number in range(1, max(seconds) + 1):
        memory.now = seconds.get(number, memory.now)
        writer.put(b"%d" % number)
        if number in seconds:
            writer.state.trimmed = Trimmed(before, births=before + 1)
            writer.checkpoints.write(writer.tail, writer.state)
            before = number - 1
    return Collecting(memory, channel), memory


@pytest.mark.parametrize(
    ("seconds", "slots"),
    [
        ({2: 0, 4: 10, 6: 20, 8: 3000}, range(9)),  # too soon
        ({2: 0, 4: 10, 6: 20, 8: 3622}, range(4, 9)),  # the checkpoint of slot 6 says that those before 4 may go
        ({2: 0, 4: 10, 6: 21, 8: 3622}, range(2, 9)),  # cut to seconds, it may have been a little less
        ({2: 0, 4: 10, 6: 1e9, 8: 3622}, range(2, 9)),  # a clock that jumped, and was set back
    ],
)
def test_a_process_that_lives_short_deletes_what_was_trimmed_long_ago_by_the_clock_of_the_store(
    seconds: dict[int, float], slots: range
) -> None:
    collecting, memory = after(seconds)
    collecting.collector.collect(Trimmed(5), set(), 6, 8)
    assert slots_of(memory) == list(slots)


def test_checkpoints_go_that_are_older_than_one_which_was_old_enough() -> None:
    collecting, _ = after({2: 0, 4: 10, 6: 3000, 8: 3700, 9: 3701})
    collecting.collector.collect(Trimmed(5), set(), 8, 9)
    assert collecting.collector._checkpoints.numbers() == [4, 6, 8, 9]


def test_a_process_looks_back_once() -> None:
    collecting, _ = after({2: 0, 4: 10, 6: 20})
    for _ in range(3):
        collecting.collector.collect(Trimmed(5), set(), 4, 6)
    assert collecting.store.counts["list"] == 1


def test_a_process_that_pauses_while_it_looks_back_continues_with_the_next_collection() -> None:
    collecting, memory = after({2: 0, 4: 10, 6: 3000, 8: 6700})
    before = slots_of(memory)
    collecting.pause_seconds = 5
    collecting.collector.collect(Trimmed(5), set(), 6, 8)
    assert slots_of(memory) == before
    collecting.pause_seconds = 0
    collecting.collector.collect(Trimmed(5), set(), 6, 8)
    assert slots_of(memory) == list(range(4, 9))


def test_a_checkpoint_of_a_log_that_was_lost_lets_nothing_go_that_is_needed_now() -> None:
    """The bucket was put back, and a handle that did not know created the checkpoint: its trims are another log's."""
    collecting, memory = after({2: 0, 4: 10, 6: 20, 8: 3622})
    staged = [segment_key(birth, "s", 0) for birth in (0, 3)]
    memory.objects |= dict.fromkeys(staged, b"")
    collecting.collector.collect(Trimmed(1, births=1), set(), 6, 8)
    assert (slots_of(memory), sorted(set(staged) & set(memory.objects))) == (list(range(2, 9)), staged[1:])


def test_a_checkpoint_that_another_channel_left_further_on_keeps_no_process_from_looking_back() -> None:
    collecting, memory = after({2: 0, 4: 10, 6: 3000, 8: 6700})
    memory.now = 1  # it was there before most of the others
    memory.create("checkpoints/00000000000000001000", b"another channel's")
    collecting.collector.collect(Trimmed(5), set(), 6, 8)
    assert (slots_of(memory), collecting.collector._checkpoints.numbers()) == (list(range(4, 9)), [6, 8, 1000])


def test_births_before_a_process_began_are_by_the_clock_of_the_store() -> None:
    collecting, memory = after({2: 0, 4: 100, 6: 200})
    memory.objects["log/²"] = memory.objects["log/7"] = b"somebody's"
    assert [collecting.collector.births(99), collecting.collector.births(99)] == [
        3,
        3,
    ]  # slot 4 may be a little younger
    assert collecting.store.counts["list"] == 1
    assert after({2: 0, 4: 100})[0].collector.births(1000) == 0


def test_the_slots_that_are_needed_are_not_held_in_memory_while_those_before_them_are_looked_for(
    collecting: Collecting, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = memory.list

    def many(prefix: str) -> Iterator[ObjectInfo]:
        yield from listed(prefix)
        if prefix == LOG:
            yield from (ObjectInfo(slot_key(number), 1, 0.0) for number in range(NEWEST + 1, 20_000))

    collecting.collect(trimmed(3))
    monkeypatch.setattr(collecting.store, "list", many)
    tracemalloc.start()
    try:
        collecting.collect(trimmed(3), 3600)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    assert slots_of(memory) == list(range(4, NEWEST + 1))
