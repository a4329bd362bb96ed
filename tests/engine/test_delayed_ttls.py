"""The ttl of an event that waits counts from when it enters the order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from spillable_stream import Channel, Event, OptionError
from spillable_stream.channel.event_columns import EventColumns
from tests.support.damage import kill
from tests.support.delays import deliveries_of
from tests.support.events import peek, take
from tests.support.expiry import WallClock

Open = Callable[..., Channel]
pytestmark = pytest.mark.usefixtures("no_second_passes")


def test_a_ttl_counts_from_when_the_event_enters_the_order(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, clock = open_channel(), WallClock(monkeypatch)
    with channel.put_transaction() as tx:
        tx.put(Event(b"short"), ttl=10, deliver_after=1000)
        tx.put(Event(b"long"), ttl=timedelta(seconds=60), deliver_after=1000)
        tx.put(Event(b"forever"), deliver_after=1000)
        tx.put(Event(b"at once"), ttl=10, deliver_after=0)
    clock.pass_by(20)
    assert take(channel) == []  # only what did not wait has expired
    clock.pass_by(1500)
    assert deliveries_of(channel).deliver()
    clock.pass_by(9)
    assert peek(channel) == [b"short", b"long", b"forever"]
    clock.pass_by(2)
    assert take(channel) == [b"long", b"forever"]
    assert channel.stats().groups["default"].expired_events == 2


def test_events_of_several_ttls_are_delivered_in_the_order_of_their_due_times(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run of events with one ttl is a frame: batches and events, of transactions of their own."""
    channel, clock = open_channel(), WallClock(monkeypatch)
    for ttl, first in ((None, 0), (100, 1), (200, 2)):
        with channel.put_transaction() as tx:
            for i in range(first, 30, 3):
                tx.put(Event(b"%d" % i), ttl=ttl, deliver_after=1 + i // 2)
            tx.put_batch(EventColumns.of([Event(b"3%d" % first)]).batch(), ttl=ttl, deliver_after=50)
    clock.pass_by(60)
    while deliveries_of(channel).deliver():
        pass
    with channel.engine().snapshot() as state:
        assert state.last_id == 33
    expected = sorted(range(30), key=lambda i: (i // 2, i % 3))  # those due at once in the order of their puts
    assert peek(channel) == [b"%d" % i for i in [*expected, 30, 31, 32]]
    clock.pass_by(100)
    left = [i for i in [*expected, 30, 31, 32] if i % 3 != 1]
    assert peek(channel) == [b"%d" % i for i in left]
    clock.pass_by(100)
    assert take(channel) == [b"%d" % i for i in left if i % 3 == 0]


def test_a_ttl_outlives_the_process_that_put_it(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, clock = open_channel(), WallClock(monkeypatch)
    with channel.put_transaction() as tx:
        tx.put(Event(b"a"), ttl=5, deliver_after=10)
    kill(channel)
    channel = open_channel()
    clock.pass_by(11)
    assert deliveries_of(channel).deliver()
    kill(channel)
    channel = open_channel()
    assert peek(channel) == [b"a"]
    clock.pass_by(6)
    assert take(channel) == []
    assert channel.stats().groups["default"].expired_events == 1


def test_a_ttl_that_can_t_be_is_refused_with_a_delay_too(open_channel: Open) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx, pytest.raises(OptionError, match="ttl must be more than 0"):
        tx.put(Event(b"a"), ttl=0, deliver_after=10)
    assert channel.stats().delayed.events == 0
