"""Take transactions."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    Event,
    OptionError,
    TransactionCapacityError,
)
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.channel.transaction import State
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.log.event_reader import ReadBatch
from tests.support.events import numbered, peek, put, take
from tests.support.expiry import WallClock
from tests.support.interrupts import Interrupts

Open = Callable[..., Channel]


def test_open_takes_of_one_group_never_overlap(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    with channel.take_transaction() as one, channel.take_transaction() as two:
        assert [e.body for e in one.take_many(3)] == numbered(0, 3)
        assert [e.body for e in two.take_many(3)] == numbered(3, 3)
        assert [e.body for e in one.take_many(2)] == numbered(6, 2)
        one.rollback()
    assert take(channel) == numbered(0, 3) + numbered(6, 4)


def test_rolled_back_takes_return_to_the_head_in_order(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 6))
    with channel.take_transaction() as tx:
        tx.take_many(4)
        tx.rollback()
    assert take(channel, 3) == numbered(0, 3)
    assert take(channel) == numbered(3, 3)


@pytest.mark.parametrize("goes_on", [False, True], ids=["rolled back", "goes on"])
@pytest.mark.parametrize("ttl", [None, 10], ids=["for good", "expired in between"])
def test_an_interrupt_anywhere_of_a_take_leaves_no_event_claimed(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, ttl: int | None, goes_on: bool
) -> None:
    """Or nobody is given them before the handle is closed, and then behind later ones."""
    clock, channel, left = WallClock(monkeypatch), open_channel(), list[bytes]()
    for i, body in enumerate(numbered(0, 8)):
        with channel.put_transaction() as tx:
            tx.put(Event(body), ttl=ttl if i % 2 else None)
        left += [] if ttl and i % 2 else [body]
    clock.pass_by(11)
    for number in count(1):
        tx = channel.take_transaction()
        tx.begin()
        interrupts = Interrupts(number, "channel/take_transaction.py", "channel/consumer.py", "channel/claims.py")
        interrupts.run(partial(tx.take_many, 3))
        if goes_on:
            before = tx.count
            assert [event.body for event in tx.take_many(8)] == left[before:]
        tx.rollback()
        assert peek(channel, 8) == left
        if not interrupts.hit:
            break
    assert number > 20


def time_out() -> None:
    raise TimeoutError


@pytest.mark.filterwarnings("ignore:a take transaction of the group:ResourceWarning")
@pytest.mark.parametrize("handler", [None, time_out], ids=["Ctrl-C", "an alarm"])
@pytest.mark.parametrize("block", [False, True], ids=["by name", "at the end of a with block"])
def test_an_interrupt_anywhere_of_a_rollback_leaves_no_event_claimed(
    open_channel: Open, block: bool, handler: Callable[[], object] | None
) -> None:
    channel, bodies = open_channel(), numbered(0, 6)
    put(channel, *bodies)

    def leave(tx: TakeTransaction) -> None:
        tx.begin()
        tx.take_many(4)
        with suppress(TimeoutError):
            interrupts.run(partial(tx.__exit__, ValueError, ValueError(), None) if block else tx.rollback)
        if not block and tx.state is State.OPEN:
            tx.rollback()

    for number in count(1):
        within = "channel/transaction.py", "channel/take_transaction.py", "channel/claims.py"
        interrupts = Interrupts(number, *within, handler=handler)
        leave(channel.take_transaction())
        assert peek(channel, 8) == bodies
        if not interrupts.hit:
            break
    assert number > 5


def test_take_waits_for_an_event(open_channel: Open) -> None:
    channel = open_channel()
    thread = threading.Timer(0.1, lambda: put(channel, b"late"))
    thread.start()
    with channel.take_transaction() as tx:
        assert tx.take(timeout_seconds=30).body == b"late"  # type: ignore[union-attr]
        assert tx.take(timeout_seconds=0.01) is None
    thread.join()


def test_take_waits_overflow_timeout_by_default(open_channel: Open) -> None:
    channel = open_channel(overflow_timeout=0.05)
    with channel.take_transaction() as tx:
        assert tx.take() is None


def test_a_take_stops_at_the_transaction_capacity(open_channel: Open) -> None:
    channel = open_channel(transaction_capacity=5)
    put(channel, *numbered(0, 5))
    put(channel, *numbered(5, 5))
    with channel.take_transaction() as tx:
        assert len(tx.take_many(3)) == 3
        assert len(tx.take_many(10)) == 2
        with pytest.raises(TransactionCapacityError, match="has taken 5 events"):
            tx.take()


def test_a_limit_below_one_is_refused(open_channel: Open) -> None:
    with (
        open_channel().take_transaction() as tx,
        pytest.raises(ValueError, match="limit must be an integer, 1 or more"),
    ):
        tx.take_many(0)


def test_events_that_expire_between_claim_and_read_are_passed_over(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_bytes=64 << 20, retention_untaken="drop")
    channel.engine().upkeep.stop()
    put(channel, bytes(300 << 10))  # a block of its own
    put(channel, b"2")
    read, expired = Consumer.read, []

    def overtaken(consumer: Consumer, ranges: list[tuple[int, int]]) -> list[ReadBatch]:
        if not expired:
            expired.append(list(ranges))
            channel.engine().commit(Control(FrameType.RETENTION, {"through": 1}))
        return read(consumer, ranges)

    monkeypatch.setattr(Consumer, "read", overtaken)
    assert take(channel) == [b"2"]
    assert expired == [[(1, 2)]]


@pytest.mark.parametrize("call", ["take_many", "take_batch"])
def test_a_limit_and_a_timeout_that_are_not_numbers_are_refused_by_their_names(open_channel: Open, call: str) -> None:
    channel = open_channel()
    put(channel, b"x")
    with channel.take_transaction() as tx:
        for limit in (None, "10", 0, -1, 2.5, [1]):
            with pytest.raises(OptionError, match="limit must be an integer, 1 or more"):
                getattr(tx, call)(limit)
        for timeout in ("soon", None, float("nan")):
            with pytest.raises(OptionError, match="timeout_seconds must be seconds, or a number with ms"):
                getattr(tx, call)(1, timeout)
        with pytest.raises(OptionError, match="timeout_seconds"):
            tx.take("soon")
        given: Any = getattr(tx, call)(1, float("inf"))
        assert len(given) == 1


# ── one that is forgotten ───────────────────────────────────────────────────────────────────────


def begun(channel: Channel, limit: int) -> TakeTransaction:
    """Return a transaction that was begun, and has taken some events."""
    tx = channel.take_transaction()
    tx.begin()
    assert len(tx.take_many(limit)) == limit
    return tx


def test_a_take_transaction_that_is_forgotten_gives_its_events_back_with_a_warning(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    tx = begun(channel, 3)
    with pytest.warns(
        ResourceWarning, match=r"group 'default' of .* was forgotten, .*: 3 events are back in the queue"
    ):
        del tx
    assert take(channel) == numbered(0, 10)


def test_one_that_took_nothing_or_is_over_is_forgotten_silently(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for end in (TakeTransaction.commit, TakeTransaction.rollback):
            tx = begun(channel, 1)
            end(tx)
            del tx
        empty = channel.take_transaction("new")
        empty.begin()
        del empty
        tx = begun(channel, 1)
        channel.close()  # the events are back in the queue
        del tx
    assert said == []


def test_a_commit_after_the_channel_was_closed_says_that_it_is_closed(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    tx = begun(channel, 3)
    channel.close()
    for call in (tx.commit, lambda: tx.take_many(1)):
        with pytest.raises(ChannelClosedError, match=r"the channel .* is closed; open it again"):
            call()
    tx.rollback()
    assert take(open_channel()) == numbered(0, 10)


def test_what_is_forgotten_waits_for_no_thread_and_comes_in_its_place(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    first, second = begun(channel, 2), begun(channel, 3)
    locked, free = threading.Event(), threading.Event()

    def hold() -> None:
        with channel.consumer("default")._mutex:
            locked.set()
            assert free.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(30)
    with pytest.warns(ResourceWarning):
        del first
    free.set()
    holder.join()
    assert take(channel, 3) == [*numbered(0, 2), *numbered(5, 1)]
    second.rollback()
    assert take(channel) == [*numbered(2, 3), *numbered(6, 4)]


def test_a_take_that_waits_gets_what_another_thread_forgets(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"x")
    kept, found = [begun(channel, 1)], []

    def wait() -> None:
        with channel.take_transaction() as tx:
            found.append(tx.take(30))

    waiting = threading.Thread(target=wait)
    waiting.start()
    with pytest.warns(ResourceWarning):
        kept.clear()
    waiting.join(30)
    assert [event.body for event in found if isinstance(event, Event)] == [b"x"]


def test_what_a_seek_has_given_back_is_not_given_back_again(open_channel: Open) -> None:
    channel = open_channel(retention_ms=3_600_000)
    put(channel, *numbered(0, 4))
    before = begun(channel, 2)
    channel.seek("default", "earliest")
    after = begun(channel, 2)
    with pytest.warns(ResourceWarning):
        del before
    assert take(channel) == numbered(2, 2)
    after.commit()


def test_a_forked_child_forgets_nothing_of_its_parent(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 4))
    tx = begun(channel, 2)
    tx._pid += 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del tx
    assert not said
    assert take(channel) == numbered(2, 2)
