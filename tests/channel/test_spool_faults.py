"""A spool whose process is killed, and whose store fails, at each request: nothing is lost, doubled or out of order."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, SpillableError
from spillable_stream.channel import spool_mover
from spillable_stream.channel.consumer import Consumer
from spillable_stream.objects.store import Store
from tests.lab.size import sized
from tests.support import pythons
from tests.support.delays import clock_of, put_late
from tests.support.events import put, take
from tests.support.faulty_store import Fault, FaultyStore, Request, at
from tests.support.object_channels import URL, kill, stores_in_memory
from tests.support.spools import kill_with_spool, open_spooled, without_threads
from tests.support.store_limits import SetLimits


class Killed(BaseException):
    """The process is no more: whatever it asks of the store from now on does not arrive."""


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> None:
    without_threads(monkeypatch)
    set_limits(answer_seconds=0)


class Run:
    """A program that puts and ships, until it is killed or the store fails, and what becomes of it.

    Args:
        directory: where the spool is.
        failing: makes the store as the program sees it.
    """

    def __init__(self, directory: Path, failing: Callable[[Store], FaultyStore]) -> None:
        self.directory = directory
        self.put: list[bytes] = []
        self.delayed: list[bytes] = []
        self.requests = 0
        self.channel: Channel | None = None
        self._failing = failing
        self._store: FaultyStore | None = None

    def check(self) -> int:
        """Run it, run the rest of it on a store that is well, and return how many requests the first part had."""
        with stores_in_memory(self._seen):
            with suppress(Killed, SpillableError):
                self._program()
            store = self._store
            assert store is not None
            self.requests = len(store.requests)
            if self.channel is not None:
                kill_with_spool(self.channel)
            store.schedule, store.after = arriving_at_the_next_append(store), lambda _: None
            channel = open_spooled(self.directory)
            self._put(channel, 2)
            while channel.flush():
                pass
            store.release()
            self._put(channel, 1)
            channel.flush()
            clock = clock_of(channel)
            assert take(channel, 1_000) == self.put
            assert channel.stats().delayed.events == len(self.delayed)
            clock.pass_by(7200)
            assert take(channel, 1_000) == self.delayed
            kill_with_spool(channel)
        return self.requests

    def _seen(self, store: Store) -> Store:
        if self._store is None:
            self._store = self._failing(store)
        return self._store

    def _program(self) -> None:
        with Channel(URL, commit_interval=0):
            pass
        self.channel = channel = open_spooled(self.directory, max_inline_bytes=500, checkpoint_on_close=False)
        for count in (3, 1, 4):
            self._put(channel, count)
            if count > 1:
                self._put_mixed(channel, count)
            channel.flush()
        self._put(channel, 1, 1_000)
        self._put_mixed(channel, 3, 1_000)
        channel.checkpoint()
        channel.flush()
        take_nothing(channel)

    def _put(self, channel: Channel, count: int, size_bytes: int = 10) -> None:
        for _ in range(count):
            body = b"%d" % (len(self.put) + len(self.delayed)) + bytes(size_bytes)
            put(channel, body)
            self.put.append(body)

    def _put_mixed(self, channel: Channel, count: int, size_bytes: int = 10) -> None:
        """Put a transaction of events, of which some are due in an hour."""
        first = len(self.put) + len(self.delayed)
        bodies = [b"mixed %d" % i + bytes(size_bytes) for i in range(first, first + count)]
        with channel.put_transaction() as tx:
            for i, body in enumerate(bodies):
                tx.put(Event(body), deliver_after=3600 if i % 2 == 0 else 0, ttl=86_400 if i % 3 == 0 else None)
        self.put += bodies[1::2]
        self.delayed += bodies[::2]


def take_nothing(channel: Channel) -> None:
    with channel.take_transaction("looks") as tx:
        tx.take_many(1)
        tx.rollback()


def arriving_at_the_next_append(store: FaultyStore) -> Callable[[Request], None]:
    """Let what the dead process still had on its way arrive right before the next slot is created."""

    def schedule(request: Request) -> None:
        if request.kind == "create" and store.held:
            store.release()

    return schedule


def killed_from(number: int, *, is_done: bool, late: bool = False) -> Callable[[Store], FaultyStore]:
    """Return what kills from this request on; the last one before may arrive late."""

    def kill_from(request: Request) -> None:
        if request.number >= number:
            raise Killed

    def hold_one(request: Request) -> Fault | None:
        if request.number > number or (request.number == number and request.kind != "create"):
            raise Killed
        return Fault.LATE if request.number == number else None

    def failing(store: Store) -> FaultyStore:
        if is_done:
            return FaultyStore(store, after=kill_from)
        return FaultyStore(store, hold_one if late else lambda request: kill_from(request))

    return failing


def kill_at_each(directory: Path, step: int, *, is_done: bool = False, late: bool = False) -> None:
    asked = Run(directory / "whole", FaultyStore).check()
    for number in range(1, asked + 1, step):
        Run(directory / f"{number}", killed_from(number, is_done=is_done, late=late)).check()


def fail_at_each(directory: Path, step: int, fault: Fault, first: int = 1) -> None:
    asked = Run(directory / "whole", FaultyStore).check()
    for number in range(first, asked + 1, step):
        Run(directory / f"{number}", lambda store, n=number: FaultyStore(store, at(n, fault))).check()  # type: ignore[misc]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_kill_at_a_request_to_the_store_loses_and_doubles_nothing(shared_memory: Path, is_done: bool) -> None:
    kill_at_each(shared_memory, 9, is_done=is_done)


def test_a_request_that_arrives_after_its_process_died_doubles_nothing(shared_memory: Path) -> None:
    kill_at_each(shared_memory, 9, late=True)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.UNAVAILABLE, Fault.REFUSED])
def test_a_request_that_fails_loses_and_doubles_nothing(shared_memory: Path, fault: Fault) -> None:
    fail_at_each(shared_memory, 13, fault)


@pytest.mark.crash
@pytest.mark.parametrize("is_done", [True, False])
def test_a_kill_at_any_request_to_the_store_loses_and_doubles_nothing(shared_memory: Path, is_done: bool) -> None:
    kill_at_each(shared_memory, 1, is_done=is_done)


@pytest.mark.crash
def test_any_request_that_arrives_after_its_process_died_doubles_nothing(shared_memory: Path) -> None:
    kill_at_each(shared_memory, 1, late=True)


@pytest.mark.crash
@pytest.mark.parametrize(("turn", "fault"), list(enumerate(Fault)))
def test_any_request_that_fails_loses_and_doubles_nothing(shared_memory: Path, turn: int, fault: Fault) -> None:
    """In CI each request fails in a seventh of all ways, each way at a seventh of all requests."""
    every = sized(ci=7, full=1)
    fail_at_each(shared_memory, every, fault, first=1 + turn % every)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("sizes", [(100, 100), (3, 100), (100, 2), (3, 2)])
def test_a_kill_at_the_take_doubles_nothing_whatever_is_shipped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, sizes: tuple[int, int]
) -> None:
    bodies = [b"%d" % i for i in range(11)]
    real = Consumer.commit

    def dies(self: Consumer, *arguments: object, **keywords: object) -> int:
        if not before:
            real(self, *arguments, **keywords)  # type: ignore[arg-type]
        raise Killed

    with stores_in_memory():
        channel = open_spooled(tmp_path / "spool")
        for body in bodies[:8]:
            put(channel, body)
            put_late(channel, 3600, b"late " + body)
        monkeypatch.setattr(spool_mover, "_PUT_EVENTS", sizes[0])
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Consumer, "commit", dies)
            channel.flush()
        kill_with_spool(channel)
        monkeypatch.setattr(spool_mover, "_PUT_EVENTS", sizes[1])
        channel = open_spooled(tmp_path / "spool")
        for body in bodies[8:]:
            put(channel, body)
        channel.flush()
        clock = clock_of(channel)
        assert take(channel) == bodies
        clock.pass_by(7200)
        assert take(channel) == [b"late " + body for body in bodies[:8]]
        kill(channel)


PROGRAM = """
    import os, signal, sys
    from spillable_stream import Channel, Event
    from spillable_stream.channel.consumer import Consumer

    Consumer.commit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    channel = Channel(sys.argv[1], durability=sys.argv[3], spool=sys.argv[2], minimum_required_space=0)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i) for i in range(100)])
        tx.put_many([Event(b"late %d" % i) for i in range(100)], deliver_after=3600)
    channel.flush()
"""


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_a_process_that_is_killed_between_publish_and_take_doubles_nothing(tmp_path: Path, durability: str) -> None:
    url, directory = f"object+file://{tmp_path}/orders", tmp_path / "spool"
    script = [sys.executable, "-c", textwrap.dedent(PROGRAM), url, str(directory), durability]
    killed = pythons.run(script, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    channel = open_spooled(directory, url, durability=durability)
    put(channel, b"100")
    assert channel.flush() == 201, "the take was not committed"
    clock = clock_of(channel)
    assert take(channel) == [b"%d" % i for i in range(101)]
    clock.pass_by(7200)
    assert take(channel) == [b"late %d" % i for i in range(100)]
    channel.close()
