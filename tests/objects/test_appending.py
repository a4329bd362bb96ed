"""One append: what it costs, what each answer leads to, and what can come of it later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations

import pytest

from spillable_stream.errors import CommitOutcomeUnknownError, CorruptionError, StorageError
from spillable_stream.format.frame import Payload
from spillable_stream.format.slot import NO_TOKEN, Slot, SlotHeader
from spillable_stream.log.wal import Entry
from spillable_stream.objects import appending
from spillable_stream.objects.appending import Appending, Attempt, Tail
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.loading import apply_slot
from spillable_stream.objects.read_ahead import BehindError
from spillable_stream.objects.slots import slot_key
from tests.lab.size import sized
from tests.support.faulty_store import Fault, FaultyStore, Request, once
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import Writer, new_channel, read_on


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def writer_on(memory: MemoryStore) -> Callable[..., tuple[Writer, FaultyStore]]:
    """Return one more writer of the channel, and the store as it sees it."""
    channel = new_channel(memory)

    def writer_on(timeout_seconds: float = 10.0) -> tuple[Writer, FaultyStore]:
        store = FaultyStore(memory)
        writer = Writer(store, channel, timeout_seconds)
        store.forget_counts()
        return writer, store

    return writer_on


Writers = Callable[..., tuple[Writer, FaultyStore]]


def flipped(data: bytes, offset: int) -> bytes:
    """Return a copy in which one byte is another one."""
    changed = bytearray(data)
    changed[offset] ^= 1
    return bytes(changed)


def asked(store: FaultyStore) -> list[tuple[str, str]]:
    return [(request.kind, request.key) for request in store.requests]


def test_an_append_that_nobody_contends_for_is_one_create_and_one_small_read(writer_on: Writers) -> None:
    writer, store = writer_on()
    writer.put(b"the first one, which stands on slot 0: that is read whole")
    for number in range(2, 5):
        store.forget_counts()
        attempt = writer.attempt(b"x")
        assert writer.appending.append(attempt) is None
        assert asked(store) == [("create", slot_key(number)), ("get_range", slot_key(number - 1))]
        writer.tail = attempt.won
    assert writer.time.slept == []


def test_the_bytes_of_a_small_append_are_put_together_once(writer_on: Writers, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, encode_all = list[int](), appending.encode_all

    def noted(frames: Sequence[Entry], seed: int, least_bytes: int) -> list[Payload]:
        made = encode_all(frames, seed, least_bytes)
        copied.append(sum(map(len, made)))
        return made

    monkeypatch.setattr(appending, "encode_all", noted)
    writer, _ = writer_on()
    attempt = writer.attempt(*[bytes(10_000)] * 10)
    assert writer.appending.append(attempt) is None
    assert copied == [attempt.size_bytes] and len(attempt.parts) == 1


def test_where_an_append_begins_is_reckoned_once_for_numbers_of_a_size(
    writer_on: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, _ = writer_on()
    made, size_bytes = list[int](), SlotHeader.size_bytes

    def noted(self: SlotHeader) -> int:
        made.append(self.number)
        return size_bytes(self)

    monkeypatch.setattr(SlotHeader, "size_bytes", noted)
    for number in (1, 5, 127, 128, 200, 300, 65_535, 65_536, 1 << 20):
        tail = replace(writer.tail, number=number - 1)
        header = SlotHeader(writer.slots.channel, number, tail.counts, NO_TOKEN, writer.appending._writer)
        assert writer.appending.begin_bytes(tail) == size_bytes(header)
    assert made == [1, 128, 300, 65_536]


def test_what_exists_and_is_mine_has_won(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    store.schedule = once("create", Fault.RETRIED)
    attempt = writer.attempt(b"x")
    assert writer.appending.append(attempt) is None
    assert memory.objects[slot_key(1)] == attempt.data
    assert store.counts["create"] == 1


def test_a_conflict_of_two_that_came_at_once_is_tried_again(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    store.schedule = once("create", Fault.CONFLICT)
    attempt = writer.attempt(b"x")
    assert writer.appending.append(attempt) is None
    assert store.counts["create"] == 2
    assert memory.objects[slot_key(1)] == attempt.data


def test_a_lost_answer_is_asked_for_with_the_same_bytes(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    store.schedule = once("create", Fault.ANSWER_LOST)
    attempt = writer.attempt(b"x")
    assert writer.appending.append(attempt) is None
    assert [request.attempt for request in store.requests if request.kind == "create"] == [1, 2]
    assert memory.objects[slot_key(1)] == attempt.data


def test_who_comes_second_is_given_the_others_slot(writer_on: Writers, memory: MemoryStore) -> None:
    (first, _), (second, _) = writer_on(), writer_on()
    attempt = second.attempt(b"mine")
    won = first.put(b"first")
    lost = second.appending.append(attempt)
    assert lost is not None and lost.header.token == won.token
    assert memory.objects[slot_key(1)] == won.data


def test_a_refusal_is_told_at_once_and_nothing_is_written(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    store.schedule = once("create", Fault.REFUSED)
    with pytest.raises(StorageError, match="nothing was committed") as caught:
        writer.appending.append(writer.attempt(b"x"))
    assert caught.value.stored_nothing and not isinstance(caught.value, CommitOutcomeUnknownError)
    assert (store.counts["create"], writer.time.slept) == (1, [])
    assert slot_key(1) not in memory.objects


def test_without_an_answer_a_fence_sees_to_it_that_the_append_never_counts(
    writer_on: Writers, memory: MemoryStore
) -> None:
    writer, store = writer_on()
    attempt = writer.attempt(b"late")

    def late(request: Request) -> Fault | None:
        """Hold back every request of the append, which is sent for 10 s, and the first of the fence."""
        return Fault.LATE if request.kind == "create" and writer.time.now <= 1010 else None

    store.schedule = late
    with pytest.raises(StorageError, match="nothing was committed") as caught:
        writer.appending.append(attempt)
    assert caught.value.stored_nothing and not isinstance(caught.value, CommitOutcomeUnknownError)
    fence = memory.objects[slot_key(1)]
    assert store.release() == store.faults[Fault.LATE] > 1
    assert memory.objects[slot_key(1)] == fence != attempt.data
    writer.follow()
    assert (writer.tail.number, writer.state.last_id) == (1, 0)
    writer.put(b"next")
    assert writer.state.last_id == 1


def test_an_append_that_arrived_before_its_fence_has_won(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    attempt = writer.attempt(b"x")

    def unanswered(request: Request) -> Fault | None:
        if request.kind == "create" and writer.time.now <= 1010:
            return Fault.ANSWER_LOST
        return Fault.UNAVAILABLE if request.kind == "get" and writer.time.now <= 1010 else None

    store.schedule = unanswered
    assert writer.appending.append(attempt) is None
    assert memory.objects[slot_key(1)] == attempt.data


def test_where_nobody_answers_the_outcome_is_not_known_until_it_is_settled(
    writer_on: Writers, memory: MemoryStore
) -> None:
    writer, store = writer_on()
    attempt = writer.attempt(b"x")
    store.schedule = lambda request: Fault.LATE if request.kind == "create" else Fault.UNAVAILABLE
    with pytest.raises(CommitOutcomeUnknownError, match="whether slot 1 counts is not known"):
        writer.appending.append(attempt)
    store.schedule = None
    store.release(0)  # the first request of the append arrives before any fence
    assert writer.appending.settle(attempt) is None
    assert memory.objects[slot_key(1)] == attempt.data


def test_what_exists_may_be_mine_though_the_store_refuses_to_show_it(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    attempt = writer.attempt(b"x")
    store.schedule = lambda request: {"create": Fault.RETRIED, "get": Fault.REFUSED}.get(request.kind)
    with pytest.raises(CommitOutcomeUnknownError, match="the store refuses to tell"):
        writer.appending.append(attempt)
    assert len(writer.time.slept) == 1
    assert attempt.owns(Slot.parse(writer.slots.channel, 1, memory.objects[slot_key(1)]))
    assert memory.objects[slot_key(1)] == attempt.data


@pytest.mark.parametrize("whose", ["mine", "another's", "nobody's"])
def test_what_is_there_is_read_where_the_store_takes_no_fence_any_more(
    writer_on: Writers, memory: MemoryStore, whose: str
) -> None:
    (other, _), (writer, store) = writer_on(), writer_on()
    attempt = writer.attempt(b"x")
    fault = Fault.ANSWER_LOST if whose == "mine" else Fault.LOST

    def may_not_write_after_the_first_request(request: Request) -> Fault | None:
        return (fault if request.attempt == 1 else Fault.REFUSED) if request.kind == "create" else None

    if whose == "another's":
        other.put(b"theirs")
    store.schedule = may_not_write_after_the_first_request
    if whose == "nobody's":  # it may still arrive
        with pytest.raises(CommitOutcomeUnknownError, match="the store refuses to tell"):
            writer.appending.append(attempt)
    elif whose == "mine":
        assert writer.appending.append(attempt) is None
        assert attempt.won.token == Slot.parse(writer.slots.channel, 1, memory.objects[slot_key(1)]).header.token
    else:
        there = writer.appending.append(attempt)
        assert there is not None and there.header.token == other.tail.token
    assert store.counts["get"] >= 1 and len(writer.time.slept) == 2


def test_a_proof_that_the_store_refuses_twice_is_not_asked_for_again(writer_on: Writers) -> None:
    writer, store = writer_on()
    writer.put(b"read whole")
    store.forget_counts()
    store.schedule = lambda request: Fault.REFUSED if request.kind == "get_range" else None
    attempt = writer.attempt(b"x")
    for call in (writer.appending.append, writer.appending.settle):
        with pytest.raises(CommitOutcomeUnknownError, match="the store refuses to tell"):
            call(attempt)
    assert len(writer.time.slept) == 2 and store.counts["get_range"] == 4


@pytest.mark.parametrize("kind", ["create", "get", "get_range"])
def test_one_refusal_that_passes_leaves_no_doubt(writer_on: Writers, memory: MemoryStore, kind: str) -> None:
    writer, store = writer_on()
    writer.put(b"read whole")
    attempt, faults = writer.attempt(b"x"), {"create": [Fault.ANSWER_LOST], kind: [Fault.REFUSED]}
    if kind == "create":
        faults[kind].insert(0, Fault.ANSWER_LOST)
    store.schedule = lambda request: (faults.get(request.kind) or [None]).pop(0)
    assert writer.appending.append(attempt) is None
    assert not any(faults.values()) and memory.objects[slot_key(2)] == attempt.data


def test_a_late_answer_is_not_waited_for_where_the_store_refuses_by_now(writer_on: Writers) -> None:
    writer, store = writer_on()
    answers = [Fault.ANSWER_LOST]
    store.schedule = lambda request: answers.pop() if answers else Fault.REFUSED
    with pytest.raises(CommitOutcomeUnknownError, match="the store refuses to tell"):
        writer.appending.append(writer.attempt(b"x"))
    assert len(writer.time.slept) == 2 and len(store.requests) == 5


def test_a_late_repetition_is_not_taken_for_the_slot_that_others_read_before_it_was_collected(
    writer_on: Writers, memory: MemoryStore
) -> None:
    """One token for all requests would make the two slots one, and what is appended to the second would be lost."""
    (writer, store), (reader, _), (other, _) = writer_on(), writer_on(), writer_on()
    attempt = writer.attempt(b"whose answer is lost")

    def sleep_over_a_collection(seconds: float) -> None:
        if not other.tail.number:
            reader.follow()
            other.follow()
            for body in (b"2", b"3", b"4"):
                other.put(body)
            for number in range(4):
                other.slots.delete(number)

    store.schedule = once("create", Fault.ANSWER_LOST)
    writer.appending.backoff = Backoff(10.0, sleep_over_a_collection, writer.time.monotonic)
    with pytest.raises(CommitOutcomeUnknownError, match="was collected meanwhile"):
        writer.appending.append(attempt)
    assert slot_key(1) in memory.objects, "the repetition filled the place"
    assert reader.tail.number == 1
    with pytest.raises(CommitOutcomeUnknownError, match="slot 1, on which it was planned, is no longer there"):
        reader.appending.append(reader.attempt(b"must not be acknowledged"))
    other.follow()
    assert (other.tail.number, other.state.last_id) == (4, 4)


def test_a_writer_that_slept_while_its_place_was_used_and_collected_does_not_acknowledge(
    writer_on: Writers, memory: MemoryStore
) -> None:
    (sleeper, _), (other, _) = writer_on(), writer_on()
    attempt = sleeper.attempt(b"zombie")
    for body in (b"1", b"2", b"3"):
        other.put(body)
    for number in range(3):
        other.slots.delete(number)
    with pytest.raises(CommitOutcomeUnknownError, match="slot 0, on which it was planned, is no longer there"):
        sleeper.appending.append(attempt)
    other.follow()
    assert (other.tail.number, other.state.last_id) == (3, 3)


def test_two_writers_that_slept_side_by_side_prove_nothing_to_each_other(
    writer_on: Writers, memory: MemoryStore
) -> None:
    """The slot before the second one's is there again, but it is the first one's, with another token."""
    (other, _), (first, _) = writer_on(), writer_on()
    at_slot_1 = first.attempt(b"a zombie in slot 1")
    other.put(b"1")
    second, _ = writer_on()
    at_slot_2 = second.attempt(b"a zombie in slot 2")
    for body in (b"2", b"3", b"4"):
        other.put(body)
    for number in range(4):
        other.slots.delete(number)
    for sleeper, attempt in ((first, at_slot_1), (second, at_slot_2)):
        with pytest.raises(CommitOutcomeUnknownError, match="was collected meanwhile"):
            sleeper.appending.append(attempt)
    assert {slot_key(1), slot_key(2)} <= memory.objects.keys()
    other.follow()
    assert (other.tail.number, other.state.last_id) == (4, 4)


class _Witness(Writer):
    """A writer that never sleeps; it collects what it has read, and knows which appends counted."""

    def __init__(self, store: MemoryStore, channel: str) -> None:
        self.counted: list[bytes] = []
        self._deleted = 0
        super().__init__(store, channel)

    def follow(self) -> None:
        is_end = False
        while not is_end:
            found, is_end = read_on(self.slots, self.tail)
            for slot in found:
                self.counted += [slot.header.token] if self.tail.accepts(slot) else []
                apply_slot(self.slots, self.state, slot)
                self.tail = Tail.of(slot)

    def append(self) -> bytes:
        self.follow()
        while self.appending.append(attempt := self.attempt(b"x")) is not None:
            self.follow()
        self.follow()
        return attempt.token

    def collect(self) -> None:
        """Delete the next slot; the newest stays."""
        self.follow()
        if self._deleted < self.tail.number:
            self.slots.delete(self._deleted)
            self._deleted += 1


class _Zombie(Writer):
    """A writer that sleeps before each step of its append, for as long as a test lets it."""

    planned: Attempt
    created = False

    def step(self, number: int) -> bytes | None:
        """Do a step, and return the token of the append if this one acknowledges it."""
        if number == 0:
            with suppress(BehindError):
                self.follow()
            self.planned = self.attempt(b"of a zombie")
        elif number == 1:
            self.created = self.slots.create(self.planned.number, self.planned.for_request())
        elif self.created:
            with suppress(CommitOutcomeUnknownError):
                self.appending._prove(self.planned, self.planned.token)
                return self.planned.token
        return None


def _wrong_orders(every: int) -> Iterator[str]:
    """Yield the orders of two zombies' steps and a witness's in which something is acknowledged that does not count."""
    witness_does = "ppppdddpd"  # puts, and deletions
    places = list(combinations(range(len(witness_does) + 6), 6))
    for number, of_zombies in enumerate((p, q) for p in places for q in combinations(p, 3)):
        if number % every:
            continue
        both, first = of_zombies
        order = "".join(("a" if i in first else "b") if i in both else "w" for i in range(len(witness_does) + 6))
        memory = MemoryStore()
        channel = new_channel(memory)
        witness, zombies = _Witness(memory, channel), {who: _Zombie(memory, channel) for who in "ab"}
        steps, acknowledged, did = dict.fromkeys("abw", 0), list[bytes](), iter(witness_does)
        for who in order:
            if who != "w":
                said = zombies[who].step(steps[who])
                acknowledged += [said] if said else []
            elif next(did) == "p":
                acknowledged.append(witness.append())
            else:
                witness.collect()
            steps[who] += 1
        witness.follow()
        if sorted(acknowledged) != sorted(token for token in witness.counted if token in acknowledged):
            yield order


@pytest.mark.parametrize("every", [499, pytest.param(sized(ci=29, full=1), marks=pytest.mark.crash)])
def test_two_zombies_that_wake_at_any_step_acknowledge_only_what_everybody_reads(every: int) -> None:
    """A zombie plans, creates and proves, each at any moment between the puts and the deletions of another writer."""
    assert list(_wrong_orders(every)) == []


def test_without_the_proof_a_zombie_acknowledges_what_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Appending, "_prove", lambda self, attempt, mine: None)
    assert next(_wrong_orders(499))


def test_a_slot_that_cannot_be_read_is_read_again_before_anything_is_told(writer_on: Writers) -> None:
    (first, _), (second, store) = writer_on(), writer_on()
    attempt = second.attempt(b"mine")
    won = first.put(b"first")
    left = [Fault.SHORT] * 3
    store.schedule = lambda request: left.pop() if request.kind == "get" and left else None
    lost = second.appending.append(attempt)
    assert lost is not None and lost.header.token == won.token
    assert second.time.slept


@pytest.mark.parametrize("whose", ["mine", "another's"])
@pytest.mark.parametrize("offset", [20, -16], ids=["in its header", "in an event"])
def test_damage_in_its_place_is_not_waited_for_and_leaves_the_outcome_open(
    writer_on: Writers, memory: MemoryStore, whose: str, offset: int
) -> None:
    (other, _), (writer, store) = writer_on(), writer_on()
    attempt = writer.attempt(b"mine")
    (writer.slots.create(1, attempt.for_request()) if whose == "mine" else other.put(b"theirs"))
    memory.objects[slot_key(1)] = flipped(memory.objects[slot_key(1)], offset)
    for call in (writer.appending.append, writer.appending.settle):
        with pytest.raises(CommitOutcomeUnknownError, match=rf"{slot_key(1)}.*'spillable verify {store.root}'") as e:
            call(attempt)
        assert isinstance(e.value.__cause__, CorruptionError)
        assert not e.value.stored_nothing and not e.value.is_lasting
    assert sum(writer.time.slept) < 1


def test_a_proof_that_is_damaged_is_not_waited_for(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    writer.put(b"to be proven by")
    memory.objects[slot_key(1)] = flipped(memory.objects[slot_key(1)], 20)
    attempt = writer.attempt(b"x")
    for call in (writer.appending.append, writer.appending.settle):
        with pytest.raises(CommitOutcomeUnknownError, match=rf"{slot_key(1)}.*'spillable verify {store.root}'"):
            call(attempt)
    assert sum(writer.time.slept) < 1


def test_damage_that_passes_leaves_no_doubt(writer_on: Writers, memory: MemoryStore) -> None:
    writer, store = writer_on()
    attempt, left = writer.attempt(b"x"), [Fault.SHORT] * 5
    creates = [Fault.ANSWER_LOST]

    def schedule(request: Request) -> Fault | None:
        faults = {"create": creates, "get": left}.get(request.kind)
        return faults.pop() if faults else None

    store.schedule = schedule
    assert writer.appending.append(attempt) is None
    assert not left and memory.objects[slot_key(1)] == attempt.data


def test_a_large_payload_is_sent_as_it_is_and_small_ones_as_one(writer_on: Writers, memory: MemoryStore) -> None:
    writer, _ = writer_on()
    large = writer.attempt(b"x" * (1 << 20))
    first, again = large.for_request(), large.for_request()  # a repetition has a token of its own
    assert len(first) == len(again) == 3
    assert first[0] != again[0] and first[1] is again[1] and len(first[1]) > 1 << 20
    assert len(writer.attempt(*[b"x" * 100] * 50).for_request()) == 1
    assert writer.appending.append(large) is None
    assert memory.objects[slot_key(1)] == large.data and large.size_bytes == len(large.data)
