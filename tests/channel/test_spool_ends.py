"""The ends of handles with a spool, and several of them at once."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from spillable_stream import Channel, Producer, StorageError, TransactionStateError, UnsafeStoreError
from spillable_stream.channel import spool as spool_module
from spillable_stream.channel import spool_mover
from spillable_stream.engine.store import last_requests
from spillable_stream.errors import ChannelClosedError, SpillableError
from spillable_stream.objects.store import Content
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Fault
from tests.support.forks import in_child
from tests.support.no_threads import no_threads
from tests.support.object_channels import URL, in_thread, log_of, store_of
from tests.support.spools import fail_store, in_store, lose_what_was_shipped, open_spooled, spool_of
from tests.support.waiting import wait_until

Open = Callable[..., Channel]

_SECONDS = 60  # of a test that hangs


def test_a_close_ships_what_is_there(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, *numbered(0, 20))
    channel.close()
    channel.close()
    assert in_store() == numbered(0, 20)
    with pytest.raises(ChannelClosedError):
        channel.put_transaction()


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_a_close_while_the_store_is_down_leaves_it_to_the_next_open(
    by_hand: Open, durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel = by_hand(durability=durability)
    put(channel, *numbered(0, 5))
    channel.flush()
    put(channel, *numbered(5, 5))
    fail_store(channel, Fault.UNAVAILABLE)
    channel.close()
    assert "5 events are left in the spool" in caplog.text
    channel = by_hand(durability=durability)
    assert channel.flush() == 5
    assert take(channel) == numbered(0, 10)


def test_a_close_ships_what_is_there_while_a_loss_waits_to_be_told(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, *numbered(0, 5))
    with log_of(channel).untold_loss.block():
        raise UnsafeStoreError("lost")
    channel.close()
    assert in_store() == numbered(0, 5)


def test_a_close_that_meets_a_loss_logs_it_once_and_ships_what_is_there(
    by_hand: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = by_hand()
    put(channel, b"0")
    lose_what_was_shipped(channel)
    put(channel, b"1")
    caplog.clear()
    channel.close()
    assert [r.levelname for r in caplog.records] == ["ERROR"] and "events are lost" in caplog.text
    assert in_store() == [b"0", b"another's", b"x", b"another's, too", b"1"]


def test_a_close_that_meets_a_loss_each_time_tries_twice(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = by_hand()
    put(channel, b"stays")
    attempts = []

    def lose() -> None:
        attempts.append(1)
        assert len(attempts) < 9
        raise UnsafeStoreError("lost")

    monkeypatch.setattr(spool_of(channel)._mover, "ship", lose)
    channel.close()
    assert len(attempts) == 2
    assert by_hand().flush() == 1


def test_the_pauses_after_a_loss_that_the_thread_meets_each_time_grow(
    by_hand: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = by_hand()
    put(channel, b"1")

    def lose() -> None:
        raise UnsafeStoreError("lost")

    spool, pauses = spool_of(channel), []
    with monkeypatch.context() as lossy:
        lossy.setattr(spool._mover, "ship", lose)
        for _ in range(4):
            assert spool.run_once()
            pauses.append(spool.period_seconds())
    assert 0 < pauses[0] < pauses[2] and pauses[1] < pauses[3]
    assert spool.run_once() and spool.period_seconds() == 0
    channel.close()
    assert in_store() == [b"1"]


def test_a_close_ships_no_longer_than_its_time(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "CLOSE_SECONDS", 0.0)
    channel = by_hand()
    put(channel, b"stays")
    channel.close()
    assert in_store() == []
    assert by_hand().flush() == 1


def test_what_the_thread_is_shipping_counts_as_the_time_of_a_close(
    by_hand: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = by_hand()
    put(channel, b"0")
    monkeypatch.setattr(spool_module, "CLOSE_SECONDS", 0.001)

    def end_late(*_: object) -> bool:
        until = time.monotonic() + 0.002
        wait_until(lambda: time.monotonic() > until)
        return True

    monkeypatch.setattr(spool_module.PeriodicThread, "end", end_late)
    channel.close()
    assert in_store() == []


def suppressed(call: Callable[[], object]) -> None:
    with suppress(SpillableError):
        call()


class Silence:
    """A store that answers no creation until it is told to."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def begin(self, channel: Channel, monkeypatch: pytest.MonkeyPatch, fault: Exception | None = None) -> None:
        inner = store_of(channel).inner
        create = inner.create

        def wait(key: str, data: Content) -> bool:
            self.is_asked.set()
            assert self.may_answer.wait(_SECONDS)
            if fault is not None:
                raise fault
            return create(key, data)

        monkeypatch.setattr(inner, "create", wait)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silence]:
    """A silence that ends with the test, and closes that wait for no answer for long."""
    monkeypatch.setattr(spool_module, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(last_requests, "LAST_REQUEST_SECONDS", 0.1)
    found = Silence()
    yield found
    found.may_answer.set()


def test_a_close_leaves_a_put_that_a_silent_store_does_not_answer_and_says_where_the_events_are(
    by_hand: Open, silence: Silence, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = by_hand()
    put(channel, *numbered(0, 5))
    silence.begin(channel, monkeypatch)
    channel.close()
    assert silence.is_asked.is_set() and not silence.may_answer.is_set()
    assert "5 events are left in the spool" in caplog.text


def test_a_put_that_a_close_leaves_to_its_thread_is_not_stored_twice(
    opened: Open, silence: Silence, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = opened()
    silence.begin(channel, monkeypatch)
    put(channel, *numbered(0, 5))
    assert silence.is_asked.wait(_SECONDS)
    shipper = spool_of(channel)._shipper
    channel.close()
    assert "5 events are left in the spool" in caplog.text
    silence.may_answer.set()
    wait_until(lambda: shipper not in {thread.ident for thread in threading.enumerate()})
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    channel = opened()
    channel.flush()
    assert take(channel) == numbered(0, 5)


@pytest.mark.parametrize("fault", [None, StorageError("a test: it timed out")])
@pytest.mark.parametrize("by", ["its close", "a flush", "its thread"])
def test_a_put_that_a_close_leaves_lets_the_next_handle_ship_when_it_ends_though_the_closed_one_is_kept(
    by: str,
    fault: Exception | None,
    request: pytest.FixtureRequest,
    silence: Silence,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened: Open = request.getfixturevalue("opened" if by == "its thread" else "by_hand")
    closed, calls = opened(), list[threading.Thread]()
    put(closed, b"waits")
    with monkeypatch.context() as silent:
        silence.begin(closed, silent, fault)
        if by == "a flush":
            calls.append(in_thread(lambda: suppressed(closed.flush)))
        if by != "its close":
            assert silence.is_asked.wait(_SECONDS)
        closed.close()
    silence.may_answer.set()
    channel = opened()
    wait_until(spool_of(channel)._ship)
    channel.flush()
    assert take(channel) == [b"waits"]
    assert caplog.text.count("1 event is left") == 1 and "not shipped now" not in caplog.text


def test_a_close_whose_time_ends_between_two_puts_lets_the_next_handle_ship_though_the_closed_one_is_kept(
    by_hand: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_mover, "_PUT_EVENTS", 1)
    closed = by_hand()
    put(closed, b"1")
    put(closed, b"2")
    spool = spool_of(closed)
    ship, waiting, close = spool._ship, spool._mover.waiting, spool._local.close
    shipped, is_between, is_left, has_ended = list[bool](), *(threading.Event() for _ in range(3))

    class Begun:
        def __init__(self, call: Callable[[], None]) -> None:
            in_thread(call)

        def ends_within(self, _: float) -> bool:
            assert is_between.wait(_SECONDS)
            return False  # its time has ended

    def look_late() -> tuple[int, int]:
        found = waiting()
        if shipped and not is_between.is_set():
            is_between.set()
            assert is_left.wait(_SECONDS)
        return found

    def note_ship() -> bool:
        shipped.append(ship())
        if is_left.is_set():
            has_ended.set()
        return shipped[-1]

    def close_late() -> None:
        is_left.set()
        assert has_ended.wait(_SECONDS)
        close()

    with monkeypatch.context() as late:
        late.setattr(spool_module, "begun_or_made", Begun)
        late.setattr(spool, "_ship", note_ship)
        late.setattr(spool._mover, "waiting", look_late)
        late.setattr(spool._local, "close", close_late)
        closed.close()
    channel = by_hand()
    assert spool_of(channel)._ship(), "the closed handle still owns the spool"
    channel.flush()
    assert take(channel) == [b"1", b"2"]


def test_a_close_without_a_flush_ships_nothing(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, b"stays")
    channel.close(flush=False)
    assert in_store() == []
    assert by_hand().flush() == 1


def test_a_close_inside_of_a_call_is_refused_and_the_spool_continues(by_hand: Open) -> None:
    channel = by_hand()
    calls = spool_of(channel)._local.engine().active_calls
    with pytest.raises(TransactionStateError):
        calls.run("a test", channel.close)
    put(channel, b"goes on")
    assert channel.flush() == 1


def test_a_forked_child_puts_to_the_same_spool(tmp_path: Path) -> None:
    channel = open_spooled(tmp_path / "spool", f"object+file://{tmp_path}/orders")
    put(channel, b"parent")
    child = os.fork()
    if not child:
        try:
            put(channel, b"child")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    channel.flush()
    put(channel, b"parent again")
    channel.flush()
    assert take(channel) == [b"parent", b"child", b"parent again"]
    channel.close()


def test_a_forked_child_without_a_thread_puts_nothing_that_nobody_would_ship(tmp_path: Path) -> None:
    channel = open_spooled(tmp_path / "spool", f"object+file://{tmp_path}/orders")
    put(channel, b"parent")

    def in_the_child() -> bool:
        with no_threads(), pytest.raises(StorageError, match="raise this user's limit of processes"):
            put(channel, b"refused")
        put(channel, b"child")
        return spool_of(channel)._thread.is_alive()

    in_child(in_the_child)
    channel.flush()
    assert take(channel) == [b"parent", b"child"]
    channel.close()


def test_one_handle_ships_for_all_that_have_the_spool_and_another_when_it_ends(by_hand: Open) -> None:
    one, other = by_hand(), by_hand()
    put(one, b"1")
    one.flush()
    put(other, b"2")
    assert other._open.spool is not None and not other._open.spool._ship(), "there are two movers"
    assert one.flush() == 1
    put(other, b"3")
    fail_store(one, Fault.UNAVAILABLE)
    one.close()
    assert other.flush() == 1
    assert take(other) == [b"1", b"2", b"3"]


def test_a_flush_that_another_handle_holds_up_says_so(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "_STALLED_SECONDS", 0.0)
    one, other = by_hand(), by_hand()
    put(one, b"1")
    one.flush()
    put(one, b"2")
    with pytest.raises(StorageError, match=r"another handle ships the spool .* still in the spool"):
        other.flush()


def test_threads_and_handles_put_at_once_and_nothing_is_lost_or_doubled(opened: Open) -> None:
    handles = [opened(), opened(durability="local")]

    def work(number: int) -> None:
        for i in range(40):
            put(handles[number % 2], b"%d %d" % (number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for handle in handles:
        handle.flush()
    found = take(handles[0])
    assert sorted(found) == sorted(b"%d %d" % (n, i) for n in range(4) for i in range(40))
    for number in range(4):
        assert [b for b in found if b.startswith(b"%d " % number)] == [b"%d %d" % (number, i) for i in range(40)]


def test_a_producer_with_a_name_continues_after_what_is_in_the_spool(by_hand: Open) -> None:
    channel = by_hand()
    for end in (1, 2):
        with Producer(channel, producer_id="import") as producer:
            assert producer.last_sequence() == end - 1
            producer.send_many([b"line %d" % end], sequence=end).result()
    channel.flush()
    assert [e.split()[1] for e in take(channel)] == [b"1", b"2"]


def test_another_handle_has_the_same_spool(by_hand: Open) -> None:
    channel = by_hand()
    other = channel.another()
    put(other, b"1")
    assert spool_of(channel).stats().events == 1
    other.close(flush=False)
    plain = Channel(URL)
    assert plain.another()._open.spool is None


def test_a_close_closes_both_channels_if_the_spool_fails(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = by_hand()
    put(channel, b"1")
    local = spool_of(channel)._local
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="a test"):
        patch.setattr(local._engine, "leave", failing)
        channel.close()
    assert local.is_closed and channel._open.is_closed and channel._open._engine.closed
    channel = by_hand()
    put(channel, b"2")
    channel.flush()
    assert take(channel) == [b"1", b"2"]


def failing(**_: object) -> None:
    raise StorageError("a test")


def test_a_handle_that_is_forgotten_leaves_its_spool_to_the_next(opened: Open, tmp_path: Path) -> None:
    url = f"object+file://{tmp_path}/orders"
    channel = open_spooled(tmp_path / "forgotten", url)
    put(channel, b"1")
    channel.flush()
    put(channel, b"2")
    spool = weakref.ref(spool_of(channel))
    del channel
    wait_until(lambda: gc.collect() is not None and spool() is None)  # its thread may be using it now
    with open_spooled(tmp_path / "forgotten", url) as channel:
        put(channel, b"3")
        channel.flush()
        assert take(channel) == [b"1", b"2", b"3"]


def test_a_spool_that_could_not_be_opened_leaves_nothing_open(by_hand: Open, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(Exception, match="spool"):
        by_hand()
    (tmp_path / "spool").unlink()
    channel = by_hand()
    put(channel, b"1")
    assert channel.flush() == 1
