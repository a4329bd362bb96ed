"""Events that wait in an object store enter the order once, whoever delivers them, and for few requests."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spillable_stream import Channel, ChannelFullError, Event
from spillable_stream.engine.deliveries import Deliveries, wall_clock_ms
from tests.support.delays import Clock, deliver_all, deliveries_of, put_late
from tests.support.events import peek, put, take
from tests.support.faulty_store import Fault, FaultyStore, once
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, collect_now, lose_slots, require_told_once, store_of, stores_in_memory
from tests.support.object_logs import FakeTime

pytestmark = pytest.mark.usefixtures("no_second_passes")


def _number_of(channel: Channel, name: str) -> int:
    return next(file.number for file in channel.engine().state.delays.files.values() if file.name == name)


@pytest.fixture
def stores() -> Iterator[dict[str, MemoryStore]]:
    with stores_in_memory(FaultyStore) as stores:
        yield stores


def in_store(clock: Clock, **options: Any) -> Channel:
    """Return a handle of the channel in a store, by a clock."""
    channel = Channel(URL, **{"commit_interval": 0, "checkpoint_on_close": False, **options})
    deliveries_of(channel).clock_ms = clock
    return channel


def requests_of(channel: Channel, call: Callable[[], object]) -> list[str]:
    """Return what a call asks of the store."""
    before = len(store_of(channel).requests)
    call()
    return [f"{r.kind} {r.key.partition('/')[0]}" for r in store_of(channel).requests[before:]]


def test_events_in_a_store_wait_and_enter_the_order_once(stores: dict[str, MemoryStore]) -> None:
    clock, rng = Clock(), random.Random(1)
    with in_store(clock) as channel, in_store(clock) as other:
        delays = [rng.uniform(1, 5000) for _ in range(60)]
        for part in (delays[:30], delays[30:]):
            with channel.put_transaction() as tx:
                for seconds in part:
                    tx.put(Event(b"%f" % seconds), deliver_after=seconds)
                tx.put(Event(b"now"))
        assert channel.stats().delayed.events == 60
        clock.pass_by(2500)
        put(other, b"new")
        put(channel, b"new")
        clock.pass_by(2501)
        expected = [b"%f" % seconds for seconds in sorted(delays)]
        assert [body for body in take(other) if body not in (b"now", b"new")] == expected
        assert channel.stats().delayed.events == other.stats().delayed.events == 0


def test_a_delayed_put_in_a_store_is_two_puts_and_a_delivery_is_one(stores: dict[str, MemoryStore]) -> None:
    clock = Clock()
    with in_store(clock) as channel, in_store(clock) as other:
        first = requests_of(channel, lambda: put_late(channel, 1, b"the first is noted in the identity"))
        assert first[:-1] == ["replace segments", "get channel.json", "replace channel.json", "create log"]
        append = ["create log", "get_range log"]
        assert requests_of(channel, lambda: put_late(channel, 10, b"a", b"b")) == ["replace segments", *append]
        clock.pass_by(5)
        assert requests_of(channel, deliveries_of(channel).deliver) == append
        assert requests_of(channel, deliveries_of(channel).deliver) == []
        other.engine().follow()
        clock.pass_by(10)
        requests = requests_of(other, deliveries_of(other).deliver)
        assert requests == ["get segments", "get channel.json", *append], "is it still this one's, and extended?"
        assert peek(other)[1:] == [b"a", b"b"]


def test_a_handle_that_lost_the_race_delivers_nothing_twice(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with in_store(clock) as channel, in_store(clock) as other:
        for seconds in (1, 2, 30):
            put_late(channel, seconds, b"%d" % seconds)
        other.engine().follow()
        clock.pass_by(10)
        read = Deliveries._read

        def read_while_the_other_delivers(self: Deliveries, *arguments: Any) -> Any:
            found = read(self, *arguments)
            monkeypatch.undo()
            assert deliveries_of(other).deliver()
            return found

        monkeypatch.setattr(Deliveries, "_read", read_while_the_other_delivers)
        assert deliveries_of(channel).deliver()  # there may be more
        assert not deliveries_of(channel).deliver()
        assert peek(channel) == [b"1", b"2"]


def test_no_other_thread_waits_for_the_requests_of_a_delivery(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        put_late(channel, 1, b"a")
        clock.pass_by(2)
        read, done = Deliveries._read, list[object]()

        def put_and_take() -> None:
            put(channel, b"b")
            with channel.take_transaction("other") as tx:
                done.extend([tx.take(10), tx.take(0.01)])

        def read_while_another_thread_commits(self: Deliveries, *arguments: Any) -> Any:
            monkeypatch.undo()
            thread = threading.Thread(target=put_and_take)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
            return read(self, *arguments)

        monkeypatch.setattr(Deliveries, "_read", read_while_another_thread_commits)
        assert deliveries_of(channel).deliver()
        assert [event and event.body for event in done] == [b"b", None]  # type: ignore[attr-defined]
        assert peek(channel) == [b"a"]


def test_a_delivery_inside_of_another_one_does_nothing(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler that takes would begin it."""
    clock = Clock()
    with in_store(clock) as channel:
        put_late(channel, 1, b"a")
        clock.pass_by(2)
        read, inside = Deliveries._read, list[bool]()

        def read_and_deliver(self: Deliveries, *arguments: Any) -> Any:
            inside.append(self.deliver())
            return read(self, *arguments)

        monkeypatch.setattr(Deliveries, "_read", read_and_deliver)
        assert deliveries_of(channel).deliver()
        assert inside == [False]
        assert peek(channel) == [b"a"]


def test_a_loss_that_is_found_by_a_delivery_waits_for_the_next_call(
    stores: dict[str, MemoryStore], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        put_late(channel, 1, b"a")
        lose_slots(channel)
        clock.pass_by(2)
        with monkeypatch.context() as looking:
            looking.setattr(Deliveries, "_deliver", lambda *_: channel.engine().follow())
            assert not deliveries_of(channel).deliver()
        require_told_once(channel, caplog)


def test_a_handle_that_slept_finds_objects_gone_and_nothing_wrong(
    stores: dict[str, MemoryStore], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with in_store(clock, gc_delay=0) as channel, in_store(clock, gc_delay=0) as asleep:
        put_late(channel, 1, b"a")
        put_late(channel, 20, b"b")
        asleep.engine().follow()
        clock.pass_by(10)
        take(channel)
        for _ in range(2):
            collect_now(channel)
        assert sum(key.startswith("segments/") for key in stores[URL].objects) == 1
        assert deliveries_of(asleep).deliver()  # it looks again
        assert not deliveries_of(asleep).deliver()
        clock.pass_by(20)
        assert deliveries_of(asleep).deliver()
        assert peek(channel) == [b"b"]
    assert caplog.records == []


def test_a_delivery_whose_outcome_is_not_known_is_settled_by_the_next_one(stores: dict[str, MemoryStore]) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        channel.engine().log._appending.backoff = FakeTime().backoff()  # type: ignore[attr-defined]
        put_late(channel, 1, b"a")
        clock.pass_by(2)
        store = store_of(channel)
        store.schedule = lambda request: Fault.ANSWER_LOST if request.kind == "create" else Fault.LOST
        assert not deliveries_of(channel).deliver()
        store.schedule = None
        deliveries_of(channel)._again_at = 0  # a second later
        deliver_all(channel)
        assert peek(channel) == [b"a"]


def test_an_object_that_is_damaged_or_gone_holds_no_other_back(
    stores: dict[str, MemoryStore], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        for body in (b"a", b"b", b"c"):
            put_late(channel, 1, body)
        damaged, gone, _ = sorted(
            channel.engine().state.delays.names(), key=lambda name: stores[URL].objects[name][-300:].find(b"c")
        )
    objects = stores[URL].objects
    data = bytearray(objects[damaged])
    data[-100] ^= 1
    objects[damaged] = bytes(data)
    del objects[gone]
    clock.pass_by(2)
    with in_store(clock) as channel:
        assert take(channel) == [b"c"]
        assert channel.stats().delayed.events == 2
        assert (deliveries_of(channel)._due_seconds() or 0) > 0
        deliveries_of(channel)._set_aside.pop(_number_of(channel, damaged))  # a second later
        assert take(channel) == []
        assert deliveries_of(channel)._due_seconds() is None
    assert "is damaged; see spillable verify" in caplog.text
    assert "the object was removed" in caplog.text


@pytest.mark.parametrize("index_is_known", [False, True])
def test_an_object_that_comes_cut_once_is_read_again(stores: dict[str, MemoryStore], index_is_known: bool) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        bodies = [b"%d" % i * 100 for i in range(100)]
        put_late(channel, 1, *bodies)
        clock.pass_by(2)
        deliveries = deliveries_of(channel)
        for file in channel.engine().state.delays.files.values() if index_is_known else ():
            deliveries._index(file)
        channel.engine().log.cache.clear()  # type: ignore[attr-defined]
        store_of(channel).schedule = once("get", Fault.SHORT, "segments/")
        deliver_all(channel)
        assert peek(channel) == []
        assert 0 < (deliveries._due_seconds() or 0) <= 3600.5
        deliveries._set_aside.clear()  # a second later
        deliver_all(channel)
        assert peek(channel) == bodies


def test_what_is_known_of_objects_goes_with_them(stores: dict[str, MemoryStore]) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        deliveries = deliveries_of(channel)
        deliveries._set_aside, deliveries._came_damaged = {7: 0.0}, {7}
        for _ in range(2):
            put_late(channel, 1, b"a")
            clock.pass_by(2)
            deliver_all(channel)
        assert (deliveries._set_aside, deliveries._came_damaged) == ({}, set())


def test_a_waiting_take_of_a_store_wakes_up_when_an_event_is_due(stores: dict[str, MemoryStore]) -> None:
    with in_store(wall_clock_ms) as channel, in_store(wall_clock_ms) as other:  # type: ignore[arg-type]
        put_late(other, 0.2, b"late")
        with channel.take_transaction() as tx:
            event = tx.take(60)
        assert event is not None
        assert event.body == b"late"


def test_those_who_wait_for_a_store_do_not_all_come_at_once(stores: dict[str, MemoryStore]) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        put_late(channel, 10, b"a")
        waits = [deliveries_of(channel)._due_seconds() for _ in range(20)]
        assert all(10 <= (wait or 0) <= 10.2 for wait in waits)
        assert len(set(waits)) > 1


def test_what_waits_in_a_store_counts_against_its_capacity(stores: dict[str, MemoryStore]) -> None:
    clock = Clock()
    with in_store(clock, overflow_capacity=3, keep_alive=0) as channel:
        put_late(channel, 1, b"a", b"b")
        with pytest.raises(ChannelFullError, match=r"\(2 of them wait until they are due\)"):
            put(channel, b"c", b"d")
        put(channel, b"c")
        clock.pass_by(2)
        assert take(channel) == [b"c", b"a", b"b"]
        put_late(channel, 1, b"d", b"e", b"f")


def test_a_view_of_a_store_and_an_earlier_version_see_what_waits(stores: dict[str, MemoryStore]) -> None:
    clock = Clock()
    with in_store(clock) as channel:
        put(channel, b"a")
        assert b'"format": 2' in stores[URL].objects["channel.json"]
        put_late(channel, 1, b"b")
        assert b'"format": 3' in stores[URL].objects["channel.json"]
        clock.pass_by(2)
        with Channel(URL, readonly=True) as view:
            deliveries_of(view).clock_ms = clock
            assert not deliveries_of(view).deliver()
            assert (view.stats().last_id, view.stats().delayed.events) == (1, 1)
