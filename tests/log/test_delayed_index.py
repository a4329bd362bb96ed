"""The events of a side file in the order in which they are due."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from spillable_stream import Channel, Event
from spillable_stream.log import delayed_index
from spillable_stream.log.delayed_index import DelayedIndex
from tests.support.delays import clock_of, deliveries_of

Open = Callable[..., Channel]


def put_at(channel: Channel, *seconds: float) -> None:
    with channel.put_transaction() as tx:
        for delay in seconds:
            tx.put(Event(b"%f" % delay), deliver_after=delay)


def test_events_are_in_the_order_of_their_due_times_while_the_file_grows(open_channel: Open) -> None:
    channel, rng = open_channel(), random.Random(2)
    clock = clock_of(channel)
    begin_ms = clock.now_ms
    clock.now_ms -= clock.now_ms % (1 << 16)  # one stretch, and so one file
    begin_ms = clock.now_ms
    index = DelayedIndex(deliveries_of(channel).files)
    expected: list[int] = []
    for _ in range(5):
        delays = [rng.randint(1, 60_000) for _ in range(20)]
        put_at(channel, *(ms / 1000 for ms in delays))
        expected = sorted(expected + [begin_ms + ms for ms in delays])
        (file,) = channel.engine().state.delays.files.values()
        index.follow(file)
        assert [place[0] for place in index.due(begin_ms + 60_000, 1000)] == expected
    assert index.due(expected[0] - 1, 10) == []
    assert [place[0] for place in index.due(begin_ms + 60_000, 7)] == expected[:7]
    assert index.next_ms(7) == expected[7]
    assert index.next_ms(100) == 0
    index.follow(file._replace(delivered=index.place(9)))
    assert [place[0] for place in index.due(begin_ms + 60_000, 1000)] == expected[10:]
    put_at(channel, 59)
    (file,) = channel.engine().state.delays.files.values()
    index.follow(file._replace(delivered=index.place(9)))
    assert len(index.due(begin_ms + 60_000, 1000)) == 91


def test_a_small_put_to_a_large_file_sorts_nothing_again(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each commit puts some and delivers some, the commit lock is held for all that waits in the file."""
    channel, rng = open_channel(), random.Random(3)
    clock = clock_of(channel)
    clock.now_ms -= clock.now_ms % (1 << 16)
    index = DelayedIndex(deliveries_of(channel).files)
    delays = [rng.randint(1, 60_000) for _ in range(1000)]
    put_at(channel, *(ms / 1000 for ms in delays))
    (file,) = channel.engine().state.delays.files.values()
    index.follow(file)
    monkeypatch.setattr(delayed_index, "_ordered", None)
    delivered = index.place(9)
    for ms in (1, 60_000, *(rng.choice(delays) for _ in range(10))):
        put_at(channel, ms / 1000)
        (file,) = channel.engine().state.delays.files.values()
        index.follow(file._replace(delivered=delivered))
    waiting = index.due(clock.now_ms + 60_000, 2000)
    assert waiting == sorted(waiting)
    assert waiting[0] > delivered
    assert len(set(waiting)) == len(waiting) >= 1000
