"""Where a reader begins, what it applies, and by what it knows that nothing is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from spillable_stream.errors import ChannelBusyError, CorruptionError, DataLossError, StorageError
from spillable_stream.format.slot import SlotHeader
from spillable_stream.objects.checkpoints import Hint
from spillable_stream.objects.loading import load
from spillable_stream.objects.parallel import MOST_AT_ONCE
from spillable_stream.objects.read_ahead import BehindError
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import ObjectInfo
from tests.support.faulty_store import FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel, read_on


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def writer(memory: MemoryStore) -> Writer:
    return Writer(memory, new_channel(memory))


def checkpoint(writer: Writer, *, hint: bool = False) -> None:
    writer.checkpoints.write(writer.tail, writer.state)
    if hint:
        writer.checkpoints.write_hint(Hint(writer.tail.number, writer.tail.number))


def collect(writer: Writer, through: int) -> None:
    for number in range(through + 1):
        writer.slots.delete(number)


def key(number: int) -> str:
    return f"checkpoints/{number:020d}"


def loaded(memory: MemoryStore, writer: Writer) -> tuple[Writer, FaultyStore]:
    """Return another handle that has just loaded the log, and what it asked for."""
    store = FaultyStore(memory)
    return Writer(store, writer.slots.channel), store


def test_a_log_without_a_checkpoint_is_read_from_its_beginning(writer: Writer, memory: MemoryStore) -> None:
    for number in range(40):
        writer.put(b"%d" % number)
    other, store = loaded(memory, writer)
    assert (other.tail, other.state.last_id) == (writer.tail, 40)
    assert other.state.image() == writer.state.image()
    assert store.counts["get"] < 40 + 2 + MOST_AT_ONCE + 3  # what may be behind the end is asked for at the same time


def test_a_hint_spares_the_listing_and_all_that_is_before_its_checkpoint(writer: Writer, memory: MemoryStore) -> None:
    for _ in range(5):
        writer.put(b"x")
    checkpoint(writer, hint=True)
    writer.put(b"y")
    other, store = loaded(memory, writer)
    assert other.state.image() == writer.state.image()
    assert store.counts["list"] == 0
    read = {r.key for r in store.requests if r.key.startswith("log/")}
    # The proof, what is new, what is not there yet, and that nothing is behind it.
    assert read == {slot_key(5), slot_key(6), slot_key(7), slot_key(8)}


class _Together(MemoryStore):
    """Answers what slot 0 is once the checkpoints are listed, and these once slot 0 is asked for."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner.root)
        self.objects = inner.objects
        self.is_asked, self.is_listed = threading.Event(), threading.Event()

    def get(self, key: str) -> bytes:
        if key == slot_key(0):
            self.is_asked.set()
            assert self.is_listed.wait(60)
        return super().get(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self.is_listed.set()
        assert self.is_asked.wait(60)
        return super().list(prefix)


def test_slot_0_is_read_beside_the_listing_that_finds_no_checkpoint(writer: Writer, memory: MemoryStore) -> None:
    writer.put(b"x")
    other, store = loaded(_Together(memory), writer)
    assert other.state.image() == writer.state.image()
    gets = {"get": 5, "get_range": 1}
    assert store.counts == {"list": 1, **gets}, "the hint, slots 0 to 2, slot 0 again to be proven, and the look behind"


@pytest.mark.parametrize("hint", [None, b"", b"nonsense", b"[]", b'{"tail": 3}', b'{"tail": 9, "checkpoint": 99}'])
def test_a_hint_that_is_missing_or_nonsense_costs_a_listing(
    writer: Writer, memory: MemoryStore, hint: bytes | None
) -> None:
    for _ in range(3):
        writer.put(b"x")
    checkpoint(writer)
    collect(writer, 2)
    if hint is not None:
        memory.objects["hint"] = hint
    other, store = loaded(memory, writer)
    assert other.state.image() == writer.state.image()
    assert store.counts["list"] == 1


def test_a_hint_whose_slots_were_collected_leads_to_the_newest_checkpoint(writer: Writer, memory: MemoryStore) -> None:
    writer.put(b"1")
    checkpoint(writer, hint=True)
    for _ in range(4):
        writer.put(b"x")
    checkpoint(writer)
    collect(writer, 4)
    other, store = loaded(memory, writer)
    assert (other.tail, other.state.last_id) == (writer.tail, 5)
    assert store.counts["list"] == 1


@pytest.mark.parametrize("damage", [lambda d: d[:-8], lambda d: d[:60] + b"?" + d[61:], lambda d: b"", lambda d: d * 2])
def test_a_damaged_checkpoint_is_passed_over_for_the_older_one(
    writer: Writer, memory: MemoryStore, damage: object
) -> None:
    writer.put(b"1")
    checkpoint(writer)
    writer.put(b"2")
    checkpoint(writer, hint=True)
    collect(writer, 0)
    memory.objects[key(2)] = damage(memory.objects[key(2)])  # type: ignore[operator]
    other, _ = loaded(memory, writer)
    assert (other.tail, other.state.image()) == (writer.tail, writer.state.image())


@pytest.mark.parametrize("collections", [1, 9, 10])
def test_a_load_looks_again_at_once_where_all_that_it_found_was_collected_meanwhile(
    writer: Writer, memory: MemoryStore, collections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look begins with a newer checkpoint: a writer must be as fast as all of them to be in the way."""
    writer.put(b"0")
    checkpoint(writer)
    store, slots = FaultyStore(memory), writer.slots.channel
    done: list[int] = []

    def collected_meanwhile(request: Request) -> None:
        if request.kind == "get" and request.key == key(writer.tail.number) and len(done) < collections:
            done.append(writer.tail.number)
            for _ in range(2):
                writer.put(b"x")
                checkpoint(writer)
            collect(writer, writer.tail.number - 1)

    store.schedule = collected_meanwhile  # type: ignore[assignment]
    main, slept = threading.current_thread(), list[float]()  # a thread of another test may sleep meanwhile
    monkeypatch.setattr(time, "sleep", lambda s: slept.append(s) if threading.current_thread() is main else None)
    if collections == 10:
        with pytest.raises(
            ChannelBusyError,
            match=r"changes faster than it can be read.*; try again; if it stays so, set a longer gc_delay",
        ):
            Writer(store, slots)
    else:
        assert Writer(store, slots).state.image() == writer.state.image()
    assert slept == [], "a sleep only makes the checkpoint older"
    assert store.counts["list"] == min(10, collections + 1)


@pytest.mark.parametrize("looks", [1, 9, 10])
def test_a_load_whose_checkpoints_are_deleted_for_later_ones_before_it_reads_them_says_that_the_channel_is_busy(
    writer: Writer, memory: MemoryStore, looks: int
) -> None:
    writer.put(b"0")
    checkpoint(writer)
    store, slots = FaultyStore(memory), writer.slots.channel

    def overtaken(request: Request) -> None:
        if request.kind == "list" and store.counts["list"] <= looks:
            older = writer.checkpoints.numbers()
            for _ in range(2):
                writer.put(b"x")
                checkpoint(writer)
            collect(writer, writer.tail.number - 2)
            for number in older:
                writer.checkpoints.delete(number)

    store.after = overtaken
    if looks == 10:
        with pytest.raises(ChannelBusyError, match="changes faster than it can be read"):
            Writer(store, slots)
    else:
        assert Writer(store, slots).state.image() == writer.state.image()


def test_without_slot_0_and_without_a_checkpoint_data_is_lost_and_it_is_said_with_what_to_do(
    writer: Writer, memory: MemoryStore
) -> None:
    writer.put(b"1")
    collect(writer, 0)
    said = "slot 0 is missing, and there is no checkpoint: .* `spillable verify .*`, and `spillable repair .*`"
    with pytest.raises(DataLossError, match=said) as caught:
        load(writer.slots, writer.checkpoints)
    assert caught.value.path == f"{memory.root}/{slot_key(0)}"


@pytest.mark.parametrize("older", [0, 3])
def test_checkpoints_that_are_damaged_are_named_where_what_an_open_needs_without_them_was_collected(
    writer: Writer, memory: MemoryStore, older: int
) -> None:
    """A collector was killed before it deleted the checkpoint of slot 3, or has deleted it."""
    for _ in range(10):
        writer.put(b"x")
        if writer.tail.number in (older, 6, 9):
            checkpoint(writer)
    collect(writer, 5)
    for number in (6, 9):
        memory.objects[key(number)] = b"damaged"
    said = rf"^the checkpoints of the slots 6, 9 are damaged, and slot {older}, with .* is gone\..* verify .* repair memory://"
    with pytest.raises(CorruptionError, match=said) as caught:
        load(writer.slots, writer.checkpoints)
    assert not isinstance(caught.value, DataLossError), "the events are there"
    assert caught.value.path == f"{memory.root}/{key(9)}"


@pytest.mark.parametrize("looks", [1, 2, 9, 10])
def test_a_checkpoint_that_was_left_over_is_not_the_newest_while_later_ones_come_and_go(
    writer: Writer, memory: MemoryStore, looks: int
) -> None:
    """A collector was killed before it deleted it; others delete their own between the listing and the reads."""
    own: list[int] = []
    for number in (3, 6, 9):
        while writer.tail.number < number:
            writer.put(b"x")
        checkpoint(writer)
        own.append(number)
    collect(writer, 5)
    store = FaultyStore(memory)

    def overtaken(request: Request) -> None:
        if request.kind == "list" and store.counts["list"] <= looks:
            for _ in range(2):
                writer.put(b"x")
                checkpoint(writer)
                own.append(writer.tail.number)
            for number in own[1:-2]:
                writer.checkpoints.delete(number)
            del own[1:-2]

    store.after = overtaken
    if looks == 10:
        with pytest.raises(ChannelBusyError, match="changes faster than it can be read"):
            Writer(store, writer.slots.channel)
    else:
        assert Writer(store, writer.slots.channel).state.image() == writer.state.image()
    assert store.counts["list"] == min(10, looks + 1)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_slot_that_is_missing_before_another_one_is_named_and_nothing_is_appended_there(
    writer: Writer, memory: MemoryStore, has_checkpoint: bool
) -> None:
    for number in range(4):
        writer.put(b"%d" % number)
        if number == 0 and has_checkpoint:
            checkpoint(writer, hint=True)
    writer.slots.delete(3)
    with pytest.raises(DataLossError, match=rf"slot 3 is missing, and slot 4 is.*spillable verify.*{slot_key(3)}"):
        loaded(memory, writer)


@pytest.mark.parametrize("size", [0, 10, 120, 200])
def test_a_slot_that_is_missing_before_a_damaged_one_is_named_too(
    writer: Writer, memory: MemoryStore, size: int
) -> None:
    for number in range(4):
        writer.put(b"%d" % number)
    writer.slots.delete(3)
    memory.objects[slot_key(4)] = memory.objects[slot_key(4)][:size]
    with pytest.raises(DataLossError, match=rf"slot 3 is missing, and slot 4 is there.*{slot_key(3)}"):
        loaded(memory, writer)


def test_what_a_channel_that_was_removed_left_behind_the_end_is_not_a_hole(writer: Writer, memory: MemoryStore) -> None:
    writer.put(b"1")
    removed = SlotHeader(str(uuid4()), 3, b"p" * 16, b"s" * 16, "a writer that slept")
    memory.objects[slot_key(3)] = b"".join(removed.encode())
    other, _ = loaded(memory, writer)
    assert other.tail == writer.tail


def test_slots_that_are_appended_while_the_end_is_looked_for_are_not_hole(
    writer: Writer, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.put(b"1")
    behind, get_range = slot_key(writer.tail.number + 2), memory.get_range

    def late(key: str, start: int, end: int) -> bytes:
        if key == behind and writer.tail.number == 1:
            writer.put(b"2")
            writer.put(b"3")
        return get_range(key, start, end)

    monkeypatch.setattr(memory, "get_range", late)
    other, _ = loaded(memory, writer)
    assert (other.state.last_id, writer.state.last_id) == (1, 3)
    other.follow()
    assert other.state.last_id == 3


@pytest.mark.parametrize("collected", [1, 2])
def test_slots_that_are_collected_while_the_end_is_looked_for_are_not_hole(
    writer: Writer, memory: MemoryStore, collected: int
) -> None:
    """An open that is paused between its requests must not say that objects of a healthy channel were removed."""
    writer.put(b"1")
    store, missing = FaultyStore(memory), slot_key(2)

    def paused(request: Request) -> None:
        if (request.kind, request.key) == ("get_range", slot_key(3)) and writer.tail.number == 1:
            writer.put(b"2")
            writer.put(b"3")
            checkpoint(writer)
        elif (request.kind, request.key) == ("get_range", missing):
            collect(writer, collected)

    store.schedule = paused  # type: ignore[assignment]
    reader = Writer(store, writer.slots.channel)
    assert missing in [request.key for request in store.requests if request.kind == "get_range"]
    assert reader.state.last_id == (1 if collected == 1 else 3)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_slots_behind_a_hole_that_puts_have_filled_are_refused_and_not_passed_over(
    writer: Writer, memory: MemoryStore, has_checkpoint: bool
) -> None:
    """An open takes the first of several missing slots for the end."""
    for number in range(6):
        writer.put(b"%d" % number)
        if number == 1 and has_checkpoint:
            checkpoint(writer, hint=True)
    for number in (3, 4):
        writer.slots.delete(number)
    other, _ = loaded(memory, writer)
    other.put(b"in the hole")
    last = other.attempt(b"in the hole, too")
    assert other.appending.append(last) is None
    for look in (other.follow, lambda: loaded(memory, writer)):
        with pytest.raises(DataLossError, match=r"slot 5 was appended after a slot 4.*spillable repair") as caught:
            look()
        assert caught.value.path == f"{memory.root}/{slot_key(5)}"


def test_what_was_found_counts_only_while_the_slot_before_it_is_there(writer: Writer, memory: MemoryStore) -> None:
    writer.put(b"1")
    tail = writer.tail
    writer.put(b"2")
    found, is_end = read_on(writer.slots, tail)
    assert ([slot.number for slot in found], is_end) == ([2], True)
    writer.slots.delete(1)
    with pytest.raises(BehindError):
        read_on(writer.slots, tail)


def test_the_slot_before_is_looked_at_last(writer: Writer, memory: MemoryStore) -> None:
    """Else what is collected in between would pass for the end of the log."""
    writer.put(b"1")
    store = FaultyStore(memory)
    reader = Writer(store, writer.slots.channel)
    writer.put(b"2")
    writer.put(b"3")

    def collected_meanwhile(request: Request) -> None:
        if (request.kind, request.key) == ("get", slot_key(2)):
            collect(writer, 2)

    store.schedule = collected_meanwhile  # type: ignore[assignment]
    with pytest.raises(BehindError):
        read_on(reader.slots, reader.tail)


def test_what_is_in_the_place_of_the_slot_before_must_be_that_slot(writer: Writer, memory: MemoryStore) -> None:
    writer.put(b"1")
    stranger = SlotHeader(writer.slots.channel, 1, b"p" * 16, b"s" * 16, "a writer that slept")
    memory.objects[slot_key(1)] = b"".join(stranger.encode())
    with pytest.raises(BehindError):
        read_on(writer.slots, writer.tail)


def test_a_slot_that_is_damaged_is_named_with_its_place(writer: Writer, memory: MemoryStore) -> None:
    tail = writer.tail
    at = writer.appending.begin_bytes(writer.tail)
    writer.put(b"1")
    memory.objects[slot_key(1)] = memory.objects[slot_key(1)][: at + 20]
    with pytest.raises(CorruptionError) as caught:
        read_on(writer.slots, tail)
    assert (caught.value.path, caught.value.offset) == (f"{memory.root}/{slot_key(1)}", at)


def test_not_all_of_a_long_log_is_read_before_it_is_applied(
    writer: Writer, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillable_stream.objects.read_ahead._MOST_SLOTS", 20)
    tail = writer.tail
    for _ in range(60):
        writer.put(b"x")
    found, is_end = read_on(writer.slots, tail)
    assert 20 <= len(found) < 20 + MOST_AT_ONCE and not is_end
    other, _ = loaded(memory, writer)
    assert other.state.last_id == 60


# ── checkpoints of slots that are lost ──────────────────────────────────────────────────────────


def put_back(writer: Writer, memory: MemoryStore, *, events: int = 2, hint: bool = False) -> None:
    """Put the bucket back to before some events; a handle that does not know creates the checkpoint of the last one."""
    with memory.put_back():
        for _ in range(events):
            writer.put(b"lost")
    checkpoint(writer, hint=hint)


@pytest.mark.parametrize("hint", [False, True])
@pytest.mark.parametrize("has_older", [False, True])
@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_a_log_without_the_slot_of_its_newest_checkpoint_is_refused_with_what_to_do(
    writer: Writer, memory: MemoryStore, has_older: bool, hint: bool, others: int
) -> None:
    """Whether the bucket was put back or not copied completely, and whether others have continued it."""
    writer.put(b"1")
    if has_older:
        checkpoint(writer)
    other = Writer(memory, writer.slots.channel)
    put_back(writer, memory, hint=hint)
    for _ in range(others):
        other.put(b"x")
    found = (
        "is of slot 3, which is not in the log: .* or it was not copied completely"
        if others < 2
        else "is of another slot 3 than the one in the log: the bucket was put back"
    )
    with pytest.raises(DataLossError, match=rf"the newest checkpoint {found}.* up to the event 3\.") as caught:
        loaded(memory, writer)
    assert caught.value.path == f"{memory.root}/{slot_key(3)}"
    assert "spillable repair" in str(caught.value)
    assert ("If it is a copy, complete it" in str(caught.value)) == (others < 2)


def test_a_checkpoint_of_those_who_continued_ends_that(writer: Writer, memory: MemoryStore) -> None:
    writer.put(b"1")
    other = Writer(memory, writer.slots.channel)
    put_back(writer, memory)
    for _ in range(4):
        other.put(b"x")
    checkpoint(other)
    third, _ = loaded(memory, writer)
    assert (third.tail, third.state.image()) == (other.tail, other.state.image())


# ── checkpoints of other slots of the same number ───────────────────────────────────────────────


def test_a_checkpoint_of_a_lost_slot_gives_way_to_that_of_the_slot_that_is_there(
    writer: Writer, memory: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    writer.put(b"1")
    other = Writer(memory, writer.slots.channel)
    put_back(writer, memory)
    for _ in range(2):
        other.put(b"x")
    checkpoint(other)
    third, _ = loaded(memory, writer)
    assert (third.tail, third.state.image(), caplog.text) == (other.tail, other.state.image(), "")


def test_a_handle_whose_slot_is_lost_leaves_the_checkpoint_of_the_slot_that_is_there(
    writer: Writer, memory: MemoryStore
) -> None:
    writer.put(b"1")
    other = Writer(memory, writer.slots.channel)
    with memory.put_back():
        for _ in range(2):
            writer.put(b"lost")
    for _ in range(2):
        other.put(b"x")
    checkpoint(other)
    with pytest.raises(StorageError, match="the checkpoint of slot 3 is of another slot 3 than the one that"):
        checkpoint(writer)
    assert loaded(memory, writer)[0].state.image() == other.state.image()


def test_a_handle_that_finds_the_checkpoint_of_another_slot_names_the_slot_in_the_log_if_that_is_damaged(
    writer: Writer, memory: MemoryStore
) -> None:
    writer.put(b"1")
    other = Writer(memory, writer.slots.channel)
    put_back(writer, memory)
    for _ in range(2):
        other.put(b"x")
    memory.objects[slot_key(3)] = b"damaged"
    before = memory.objects[key(3)]
    with pytest.raises(CorruptionError) as caught:
        checkpoint(other)
    assert caught.value.path == f"{memory.root}/{slot_key(3)}"
    assert memory.objects[key(3)] == before
