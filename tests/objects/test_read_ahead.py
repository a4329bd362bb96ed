"""How many slots are asked for at the same time, and that none is under way when a look has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.objects import parallel
from spillable_stream.objects.parallel import MOST_AT_ONCE, most_at_once
from spillable_stream.objects.read_ahead import BehindError, ReadAhead
from spillable_stream.objects.slots import Slots, slot_key
from tests.support.faulty_store import FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel, read_on


class CountingStore(MemoryStore):
    """Counts how many objects are read, and at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_reading, self.most, self.reads = 0, 0, 0
        self._counting = threading.Lock()

    def get(self, key: str) -> bytes:
        with self._counting:
            self.now_reading += 1
            self.reads += 1
            self.most = max(self.most, self.now_reading)
        try:
            return super().get(key)
        finally:
            with self._counting:
                self.now_reading -= 1


@pytest.fixture
def memory() -> CountingStore:
    return CountingStore()


@pytest.fixture
def writer(memory: CountingStore) -> Writer:
    return Writer(memory, new_channel(memory))


@pytest.mark.parametrize(("news", "most_in_vain"), [(0, 1), (1, 1), (2, 4), (6, 16), (30, MOST_AT_ONCE)])
def test_a_look_asks_for_few_slots_in_vain_and_for_more_the_more_there_are(
    writer: Writer, memory: CountingStore, news: int, most_in_vain: int
) -> None:
    before = writer.tail
    for number in range(news):
        writer.put(b"%d" % number)
    memory.reads = 0
    found, is_end = read_on(writer.slots, before)
    assert ([slot.number for slot in found], is_end) == (list(range(1, news + 1)), True)
    proof = 1  # slot 0
    assert news + 1 <= memory.reads - proof <= news + most_in_vain
    assert memory.now_reading == 0


def test_slots_are_read_on_while_a_chunk_is_proven(
    writer: Writer, memory: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillable_stream.objects.read_ahead._MOST_SLOTS", 10)
    before = writer.tail
    for _ in range(60):
        writer.put(b"x")
    asked = list[str]()

    def note(request: Request) -> None:
        asked.append(f"{request.kind} {request.key}")

    def begin(root: str, call: Callable[[], object]) -> Future[object]:
        asked.append("begin")  # the request itself may come later, in a thread
        return parallel.begin(root, call)

    monkeypatch.setattr("spillable_stream.objects.read_ahead.begin", begin)
    store = FaultyStore(memory, note)
    with ReadAhead(Slots(store, writer.slots.channel), before) as ahead:
        first, is_end = ahead.chunk()
        assert ([slot.number for slot in first], is_end) == (list(range(1, 11)), False)
        proven = asked.index(f"get {slot_key(0)}")
        assert 2 + asked[:proven].count("begin") > 10, "the first two need no thread, and the 11th is under way"
        second, _ = ahead.chunk()
    assert [slot.number for slot in second] == list(range(11, 21))
    assert f"get_range {slot_key(10)}" in asked, "each chunk is proven by the slot before it"


def test_what_was_collected_meanwhile_shows_at_the_next_chunk(
    writer: Writer, memory: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillable_stream.objects.read_ahead._MOST_SLOTS", 10)
    before = writer.tail
    for _ in range(60):
        writer.put(b"x")
    with ReadAhead(writer.slots, before) as ahead:
        ahead.chunk()
        for number in range(12):
            writer.slots.delete(number)
        with pytest.raises(BehindError):
            ahead.chunk()
    assert memory.now_reading == 0


def test_a_damaged_slot_behind_the_end_is_nobodys_matter(writer: Writer, memory: CountingStore) -> None:
    before = writer.tail
    for _ in range(3):
        writer.put(b"x")
    memory.objects[slot_key(5)] = b"damaged"
    assert len(read_on(writer.slots, before)[0]) == 3
    memory.objects[slot_key(4)] = b"damaged"
    with pytest.raises(CorruptionError):
        read_on(writer.slots, before)


def test_of_large_objects_fewer_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_MOST_BYTES", 1000)
    assert [most_at_once(size) for size in (0, 31, 100, 600, 5000)] == [MOST_AT_ONCE, MOST_AT_ONCE, 10, 1, 1]


def test_large_slots_are_read_one_by_one(
    writer: Writer, memory: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = writer.tail
    for _ in range(30):
        writer.put(b"x" * 600)
    memory.most = 0
    monkeypatch.setattr(parallel, "_MOST_BYTES", 1000)
    assert len(read_on(writer.slots, before)[0]) == 30
    assert memory.most == 1


def test_many_small_slots_are_asked_for_at_once_again_after_a_large_one(
    writer: Writer, memory: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = writer.tail
    for body in (b"x" * 5000, *[b"x"] * 80):
        writer.put(body)
    asked = list[Future[object]]()

    def begin(root: str, call: Callable[[], object]) -> Future[object]:
        asked.append(parallel.begin(root, call))
        return asked[-1]

    monkeypatch.setattr("spillable_stream.objects.read_ahead.begin", begin)
    monkeypatch.setattr(parallel, "_MOST_BYTES", 40_000)
    assert len(read_on(writer.slots, before)[0]) == 81
    assert len(asked) > 81 + 20


def test_a_log_is_read_while_the_store_of_another_one_answers_no_request_that_its_reader_has_begun(
    writer: Writer, memory: CountingStore
) -> None:
    away = MemoryStore("memory://away/orders")
    other, answers = Writer(away, new_channel(away)), threading.Event()
    before, others_before = writer.tail, other.tail
    for _ in range(2 * MOST_AT_ONCE):
        writer.put(b"x")
        other.put(b"x")
    hung = threading.Semaphore(0)

    def hang(request: Request) -> None:
        if request.key > slot_key(MOST_AT_ONCE):
            hung.release()
            assert answers.wait(60)

    slots = Slots(FaultyStore(away, hang), other.slots.channel)
    with ThreadPoolExecutor(2) as readers:
        hanging = readers.submit(read_on, slots, others_before)
        try:
            for _ in range(MOST_AT_ONCE):
                assert hung.acquire(timeout=60)
            found, is_end = readers.submit(read_on, writer.slots, before).result(60)
            assert (len(found), is_end, hanging.done()) == (2 * MOST_AT_ONCE, True, False)
        finally:
            answers.set()
        assert len(hanging.result(60)[0]) == 2 * MOST_AT_ONCE
