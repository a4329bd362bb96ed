"""Histories of writers, readers and a collector on a store that fails in every way, beside what must hold of each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random

import pytest

from spillable_stream.errors import ChannelBusyError, CommitOutcomeUnknownError, CorruptionError, StorageError
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.log.wal import Entry
from spillable_stream.objects.appending import Appending, Tail
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.checkpoints import Checkpoints, Hint
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.identity import create_identity
from spillable_stream.objects.loading import apply_slot, load
from spillable_stream.objects.location import Location
from spillable_stream.objects.read_ahead import BehindError
from spillable_stream.objects.slots import Slots
from spillable_stream.objects.store import Content, ObjectMissingError, Store, StoreError
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from tests.lab.size import sized
from tests.support.faulty_store import Fault, FaultyStore, Request, seeded
from tests.support.interleaving import Interleaving
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import read_on


@pytest.fixture(autouse=True)
def _one_request_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client wait for each of its requests, and for a time that is not chosen: the seed alone chooses all."""
    monkeypatch.setattr("spillable_stream.objects.read_ahead.begin", _done)
    monkeypatch.setattr("spillable_stream.objects.backoff.random.uniform", lambda least, most: (least + most) / 2)


def _done(_root: str, call: Callable[[], object]) -> Future[object]:
    made = Future[object]()
    try:
        made.set_result(call())
    except Exception as e:
        made.set_exception(e)
    return made


@dataclass
class Appended:
    """What a writer was told of one append: when it began, when it ended, and its ID; None if it failed."""

    name: str
    began: int
    ended: int = -1
    event_id: int | None = None
    outcome: str = "open"


@dataclass
class Seen:
    """What a reader was shown, and when it began and ended to look."""

    began: int
    ended: int
    names: list[str]


@dataclass
class History:
    """Clients on one store."""

    seed: int
    share: float
    faults: tuple[Fault, ...] = tuple(Fault)
    inner: Store = field(default_factory=MemoryStore)
    appended: list[Appended] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    stores: list[FaultyStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.order = Interleaving(self.seed)
        self.random = Random(self.seed)
        state = ChannelState(ChannelOptions(), [encode_schema(EVENT_SCHEMA)])
        self.channel = create_identity(self.inner, state.small(), "test", Backoff(0))

    def store(self) -> FaultyStore:
        """Return the store as one host sees it: a request, its arrival and its answer are three moments."""
        seed = self.random.randrange(1 << 30)
        changes, looks = seeded(seed, self.share, self.faults), seeded(seed, self.share / 5, self.faults)

        def schedule(request: Request) -> Fault | None:
            self.order.pause()
            return (changes if request.kind in ("create", "delete") else looks)(request)

        made = FaultyStore(
            self.inner, schedule, late_by=lambda r: r.number % 7 or None, after=lambda _: self.order.pause()
        )
        self.stores.append(made)
        return made

    def backoff(self) -> Backoff:
        return Backoff(self.random.choice((0.5, 5.0)), self.order.pause, self.order.monotonic)

    def writer(self, name: str, count: int, sleeps: float) -> None:
        """Add a client that appends; it may sleep between a plan and its append, as a host does that is paused."""
        slots = Slots(self.store(), self.channel)
        checkpoints = Checkpoints(slots.store, self.channel)
        appending = Appending(slots, name, self.backoff())

        def work() -> None:
            tail, state = self._load(slots, checkpoints)
            for number in range(count):
                said = Appended(f"{name}-{number}", self.order.steps)
                self.appended.append(said)
                while said.outcome == "open":
                    if self.random.random() < sleeps:
                        self.order.pause(self.random.choice((0.0, 3.0, 30.0)))
                    attempt = appending.attempt(tail, [_entry(state, said.name)])
                    try:
                        lost = appending.append(attempt)
                        if lost is None:
                            said.event_id, said.outcome = state.next_id, "done"
                    except CommitOutcomeUnknownError:
                        said.outcome = "unknown"
                    except StorageError:
                        said.outcome = "failed"
                    said.ended = self.order.steps
                    if said.outcome == "unknown":
                        self._settle(appending, attempt, slots, tail)
                    tail, state = self._load(slots, checkpoints)

        self.order.client(work)

    def _settle(self, appending: Appending, attempt: object, slots: Slots, tail: Tail) -> None:
        """Do what a handle does before its next append."""
        while True:
            try:
                appending.settle(attempt)  # type: ignore[arg-type]
            except CommitOutcomeUnknownError:
                try:
                    read_on(slots, tail)
                except BehindError:
                    return
                except (StoreError, CorruptionError):
                    self.order.pause(1.0)
                continue
            except StorageError:
                pass
            return

    def _load(self, slots: Slots, checkpoints: Checkpoints) -> tuple[Tail, ChannelState]:
        while True:
            try:
                found = load(slots, checkpoints)
                return found.tail, found.state
            except (StoreError, ChannelBusyError, CorruptionError):  # what was cut short twice looks damaged
                self.order.pause(0.5)

    def reader(self, count: int) -> None:
        """Add a client that follows, and loads anew where it must."""
        slots = Slots(self.store(), self.channel)
        checkpoints = Checkpoints(slots.store, self.channel)

        def work() -> None:
            tail, state = self._load(slots, checkpoints)
            for _ in range(count):
                self.order.pause(self.random.choice((0.0, 1.0, 10.0)))
                began = self.order.steps
                try:
                    is_end = False
                    while not is_end:
                        found, is_end = read_on(slots, tail)
                        for slot in found:
                            apply_slot(slots, state, slot)
                            tail = Tail.of(slot)
                except BehindError:
                    began = self.order.steps
                    tail, state = self._load(slots, checkpoints)
                except (StoreError, CorruptionError):
                    continue
                self.seen.append(Seen(began, self.order.steps, list(state.sinks)))

        self.order.client(work)

    def collector(self, count: int) -> None:
        """Add a client that makes checkpoints and deletes all slots before them at once."""
        slots = Slots(self.store(), self.channel)
        checkpoints = Checkpoints(slots.store, self.channel)

        def work() -> None:
            deleted = 0
            for _ in range(count):
                self.order.pause(self.random.choice((0.0, 2.0)))
                tail, state = self._load(slots, checkpoints)
                try:
                    checkpoints.write(tail, state)
                    checkpoints.write_hint(Hint(tail.number, tail.number))
                except StorageError:
                    continue
                while deleted < tail.number:
                    try:
                        slots.delete(deleted)
                        deleted += 1
                    except StoreError:
                        self.order.pause(0.2)

        self.order.client(work)

    def check(self) -> None:
        """Run all clients, and prove what they were told by what is in the log."""
        self.order.run()
        for store in self.stores:
            store.release()
        final = load(Slots(self.inner, self.channel), Checkpoints(self.inner, self.channel)).state
        names = list(final.sinks)
        assert final.last_id == len(names), "an append counted twice, or was planned on another state"
        place = {name: i + 1 for i, name in enumerate(names)}
        for said in self.appended:
            if said.outcome == "done":
                assert place.get(said.name) == said.event_id, f"{said} is not in the log as acknowledged: {names}"
            elif said.outcome == "failed":
                assert said.name not in place, f"{said} is in the log"
        done = [said for said in self.appended if said.outcome == "done"]
        for a in done:
            for b in done:
                if a.ended < b.began:
                    assert place[a.name] < place[b.name], f"{a} came before {b}"
        for seen in self.seen:
            assert seen.names == names[: len(seen.names)], "a reader saw what is no beginning of the log"
            for said in done:
                if said.ended < seen.began:
                    assert said.name in seen.names, f"a reader that began at {seen.began} does not see {said}"
        for first in self.seen:
            for second in self.seen:
                if first.ended < second.began:
                    assert len(first.names) <= len(second.names), f"{second} sees less than {first}, which had ended"


def _entry(state: ChannelState, name: str) -> Entry:
    record = CommitRecord("put", 0, sink=(name, 1))
    header = record.frame(1).header(state.next_transaction, state.next_id, state.time_us + 1)
    return header, record.frame(1).payload, record


def _history(seed: int, share: float, faults: tuple[Fault, ...] = tuple(Fault)) -> History:
    return _with_clients(History(seed, share, faults))


def _with_clients(history: History) -> History:
    for name in "abc":
        history.writer(name, 4, sleeps=0.2)
    for _ in range(3):
        history.reader(6)
    history.collector(5)
    return history


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_what_was_acknowledged_is_in_the_log_once_and_in_order(share: float) -> None:
    for seed in range(3):
        _history(seed, share).check()


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_what_was_acknowledged_is_there_in_thousands_of_histories(share: float) -> None:
    for seed in range(3, 6 + sized(ci=45, full=5_000)):
        _history(seed, share).check()


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("store", ["s3", "gcs", "azurite", "radosgw"], indirect=True)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_what_was_acknowledged_is_there_in_histories_on_servers(store: Store, share: float) -> None:
    for seed in range(sized(ci=1, full=30)):
        inner = CloudStore(Location.parse(f"{store.root}/{seed}"))
        _with_clients(History(seed, share, inner=inner)).check()


Mutation = Callable[[pytest.MonkeyPatch], None]


def _trust_what_exists(patch: pytest.MonkeyPatch) -> None:
    """Take any "exists" for another's slot."""
    original = Slots.read

    def read(self: Slots, number: int) -> object:
        found = original(self, number)
        if found is not None and "append" in _callers():
            object.__setattr__(found, "header", found.header._replace(token=bytes(16)))
        return found

    patch.setattr(Slots, "read", read)


def _trust_what_was_absent(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge what was created, without a look at the slot before it."""
    patch.setattr(Appending, "_prove", lambda self, attempt, mine: None)


def _give_up_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    """Say that nothing was committed when nobody answers."""

    def settle(self: Appending, attempt: object, cause: object = None) -> None:
        raise StorageError("no answer")

    patch.setattr(Appending, "settle", settle)


def _read_without_proof(patch: pytest.MonkeyPatch) -> None:
    """Follow without a look at the slot before."""
    patch.setattr("spillable_stream.objects.read_ahead.require_there", lambda slots, tail: None)


def _callers() -> set[str]:
    import sys

    frame, names = sys._getframe(2), set()
    while frame is not None and len(names) < 20:
        names.add(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutate", "share", "faults"),
    [
        (_trust_what_exists, 0.3, tuple(Fault)),
        (_trust_what_was_absent, 0.3, tuple(Fault)),
        (_give_up_without_a_fence, 0.7, (Fault.LATE, Fault.LOST)),
        (_read_without_proof, 0.3, tuple(Fault)),
    ],
)
def test_a_broken_append_is_found(
    mutate: Mutation, share: float, faults: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    for seed in range(400):
        try:
            _history(seed, share, faults).check()
        except AssertionError:
            return
    pytest.fail("no history showed it")


class _ShowsToOneFirst(MemoryStore):
    """Answers a creator late, and until it asks for the next thing shows the object only to whoever asks first.

    So whatever is acknowledged is there for all: the predecessor check comes before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pause: Callable[[float], None] = lambda _: None
        self._creators: dict[str, threading.Thread] = {}
        self._first: dict[str, threading.Thread] = {}

    def create(self, key: str, data: Content) -> bool:
        self._go_on()
        is_new = super().create(key, data)
        if is_new:
            self._creators[key] = threading.current_thread()
            self.pause(10.0)
        return is_new

    def get(self, key: str) -> bytes:
        self._go_on()
        me = threading.current_thread()
        if key in self._creators and key in self.objects and self._first.setdefault(key, me) is not me:
            raise ObjectMissingError(f"{key} is not there yet")
        return super().get(key)

    def _go_on(self) -> None:
        me = threading.current_thread()
        self._creators = {key: creator for key, creator in self._creators.items() if creator is not me}


def test_a_store_that_shows_an_object_to_one_reader_before_another_is_found() -> None:
    for seed in range(400):
        history = History(seed, 0.0, inner=(store := _ShowsToOneFirst()))
        store.pause = history.order.pause
        try:
            _with_clients(history).check()
        except AssertionError as e:
            assert "sees less than" in str(e)  # no other promise is broken
            return
    pytest.fail("no history showed it")
