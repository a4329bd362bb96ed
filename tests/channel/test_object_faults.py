"""A channel on a store that fails once, at each of its requests and in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import pytest

from spillable_stream import Channel, CommitOutcomeUnknownError, Event, SpillableError
from spillable_stream.objects.store import Store
from tests.lab.size import sized
from tests.support.delays import clock_of, deliver_all
from tests.support.faulty_store import APPLICABLE, Fault, FaultyStore, Request, at
from tests.support.object_channels import URL, stores_in_memory
from tests.support.store_limits import set_limits

Program = Callable[["Told"], None]


@dataclass
class Told:
    """What a program was told of its transactions."""

    put: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    taken: list[bytes] = field(default_factory=list)
    maybe_taken: list[bytes] = field(default_factory=list)


def program(told: Told) -> None:
    """Open a channel, put small and large transactions, take, create a checkpoint, and close; stop where one fails."""
    with Channel(URL, commit_interval=0, gc_delay=0, max_inline_bytes=500, checkpoint_on_close=False) as channel:
        for number in range(4):
            put(channel, told, number, 1_000 if number == 2 else 10)
        for _ in range(2):
            take(channel, told)
        for _ in range(3):
            channel.checkpoint()
        put(channel, told, 4, 10)


def delaying_program(told: Told) -> None:
    """Open a channel, put events that wait, let some be due, take, copy together and collect, and close."""
    with Channel(URL, commit_interval=0, gc_delay=0, checkpoint_on_close=False) as channel:
        clock = clock_of(channel)
        for number in range(1, 5):
            put(channel, told, number, 10, deliver_after=1_000 * number)
        channel.checkpoint()
        clock.pass_by(2_500)
        put(channel, told, 0, 10)  # and two of the others are due
        take(channel, told)
        for _ in range(2):
            channel.checkpoint()
        clock.pass_by(2_500)
        for _ in range(2):
            take(channel, told)
        channel.checkpoint()


def put(channel: Channel, told: Told, number: int, size_bytes: int, deliver_after: float = 0) -> None:
    body = b"%d" % number + bytes(size_bytes)
    tx = channel.put_transaction()
    tx.begin()
    try:
        tx.put(Event(body), deliver_after=deliver_after)
        tx.commit()
        told.put.add(body)
    except CommitOutcomeUnknownError:
        raise
    except SpillableError:
        told.refused.add(body)
        raise


def take(channel: Channel, told: Told) -> None:
    tx = channel.take_transaction()
    tx.begin()
    bodies = [e.body for e in tx.take_many(1)]
    try:
        tx.commit()
        told.taken += bodies
    except (CommitOutcomeUnknownError, Killed):
        told.maybe_taken += bodies
        raise


def run(of: Program, number: int, fault: Fault) -> list[Request]:
    """Run a program with a fault at one request, then look what is there; return the program's requests."""
    return check(of, lambda store: FaultyStore(store, at(number, fault), late_by=lambda _: 3), SpillableError)


def run_killed(of: Program, number: int, *, is_done: bool) -> list[Request]:
    """Kill a program at one request, which is done or not, then look what is there."""

    def kill_from(request: Request) -> None:
        if request.number >= number:
            raise Killed

    def killing(store: Store) -> FaultyStore:
        if is_done:
            return FaultyStore(store, after=kill_from)
        return FaultyStore(store, kill_from)

    return check(of, killing, Killed)


class Killed(BaseException):
    """The process is no more: whatever it asks of the store from now on does not arrive."""


def check(of: Program, failing: Callable[[Store], FaultyStore], ending: type[BaseException]) -> list[Request]:
    """Run a program on such a store, and prove by what is there what it was told."""
    told, stores = Told(), list[FaultyStore]()

    def seen_by(store: Store) -> Store:
        if not stores:
            stores.append(failing(store))
        return stores[0]

    with stores_in_memory(seen_by), pytest.MonkeyPatch.context() as patch:
        set_limits(patch, worth_a_trim=1, many_slots=2, quiet_seconds=0, many_puts=3, many_of_a_stretch=3, soon_ms=0)
        with suppress(ending):
            of(told)
        requests = list(stores[0].requests)
        stores[0].schedule, stores[0].after = None, lambda _: None
        stores[0].release()
        with Channel(URL, commit_interval=0) as channel:
            set_limits(patch, answer_seconds=0)
            clock_of(channel).pass_by(10_000)
            deliver_all(channel)
            tx = channel.take_transaction()
            tx.begin()
            left = [e.body for e in tx.take_many(100)]
            tx.rollback()
            ids = [first for first, _ in [(b.first_id, b) for b in channel.engine().state.blocks]]
        assert sorted(ids) == ids
        there = told.taken + left
        assert len(set(left)) == len(left), "an event is there twice"
        assert not set(left) & set(told.taken), "a committed take came back"
        assert told.put - set(told.maybe_taken) <= set(there), "an acknowledged put is lost"
        assert not told.refused & set(there), "a refused put is there"
        assert [int(body[:1]) for body in there] == sorted(int(body[:1]) for body in there)
    return requests


@cache
def requests_of_one_run(of: Program) -> list[Request]:
    return run(of, 10**9, Fault.LOST)


def changes_of_one_run(of: Program) -> list[Request]:
    return [request for request in requests_of_one_run(of) if request.kind not in ("get", "get_range", "list")]


def of_each_kind(requests: Iterable[Request], turn: int = 0) -> list[int]:
    """Return the number of one request of each kind and for each kind of object; each turn chooses others."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for request in requests:
        kinds.setdefault((request.kind, request.key.partition("/")[0]), []).append(request.number)
    return [numbers[turn % len(numbers)] for numbers in kinds.values()]


PROGRAMS = pytest.mark.parametrize("of", [program, delaying_program])


@PROGRAMS
@pytest.mark.parametrize(("turn", "fault"), list(enumerate(Fault)))
def test_a_request_that_fails_costs_nothing_that_was_acknowledged(of: Program, turn: int, fault: Fault) -> None:
    """Each way another one of each kind. To a read a 503 is what any lost request is."""
    asked = requests_of_one_run(of) if fault is not Fault.UNAVAILABLE else changes_of_one_run(of)
    possible = [request for request in asked if fault in APPLICABLE[request.kind]]
    for number in of_each_kind(possible, turn):
        run(of, number, fault)


@PROGRAMS
@pytest.mark.parametrize("is_done", [True, False])
def test_a_kill_at_any_request_costs_nothing_that_was_acknowledged(of: Program, is_done: bool) -> None:
    """After each that changes the store, which also is before the next one; before one of each kind."""
    changes = changes_of_one_run(of)
    for number in [change.number for change in changes] if is_done else of_each_kind(changes):
        run_killed(of, number, is_done=is_done)


@pytest.mark.crash
@PROGRAMS
@pytest.mark.parametrize("is_done", [True, False])
def test_a_kill_at_each_request_costs_nothing_that_was_acknowledged(of: Program, is_done: bool) -> None:
    for number in range(1, len(requests_of_one_run(of)) + 1):
        run_killed(of, number, is_done=is_done)


@pytest.mark.crash
@PROGRAMS
@pytest.mark.parametrize(("turn", "fault"), list(enumerate(Fault)))
def test_any_request_that_fails_costs_nothing_that_was_acknowledged(of: Program, turn: int, fault: Fault) -> None:
    """In CI each request fails in a seventh of all ways, each way at a seventh of all requests."""
    every = sized(ci=7, full=1)
    for number in range(1 + turn % every, len(requests_of_one_run(of)) + 1, every):
        run(of, number, fault)
