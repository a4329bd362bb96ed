"""Delayed events that are read: in any order, those of one kind together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel, CorruptionError, Event
from spillable_stream.engine.waiting_events import WaitingEvents
from spillable_stream.log.delayed_index import DelayedIndex
from spillable_stream.state.delays import Place
from tests.support.delays import clock_of, deliveries_of

Open = Callable[..., Channel]


def waiting(channel: Channel) -> tuple[WaitingEvents, list[tuple[Place, int]]]:
    """Return all events of a channel that wait, read, and where they are."""
    files, engine = deliveries_of(channel).files, channel.engine()
    events, places = WaitingEvents(files, engine.schemas()), list[tuple[Place, int]]()
    for file in engine.state.delays.files.values():
        index = DelayedIndex(files)
        index.follow(file)
        found = index.due(1 << 60, 1000)
        places += [(place, file.number) for place in found]
    assert events.read_first(places, engine.state.delays.files, 1 << 20) == len(places)
    return events, places


def test_events_come_in_the_order_that_is_asked_for(open_channel: Open) -> None:
    channel = open_channel()
    clock_of(channel).begin_stretch(10_000)
    for i in range(3):
        with channel.put_transaction() as tx:
            tx.put_many([Event(b"%d %d" % (i, n)) for n in range(3)], deliver_after=10_000 * (i + 1))
    events, places = waiting(channel)
    for order in (places, places[::-1], places[2:5]):
        found = [body for _, batch in events.in_order(order) for body in batch.column("body").to_pylist()]
        assert found == [b"%d %d" % (number - 1, row) for (_, _, row), number in order]


def test_neighbors_of_one_ttl_come_together(open_channel: Open) -> None:
    channel = open_channel()
    clock_of(channel).begin_stretch(10_000)
    with channel.put_transaction() as tx:
        for i, ttl in enumerate([None, None, 5, 5, 7, None]):
            tx.put(Event(b"%d" % i), ttl=ttl, deliver_after=10_000 + i)
    events, places = waiting(channel)
    runs = [(kind.ttl_us, batch.column("body").to_pylist()) for kind, batch in events.in_order(sorted(places))]
    assert runs == [(0, [b"0", b"1"]), (5_000_000, [b"2", b"3"]), (7_000_000, [b"4"]), (0, [b"5"])]


def test_events_of_a_schema_that_nobody_knows_are_damage(open_channel: Open) -> None:
    channel = open_channel()
    clock_of(channel)
    with channel.put_transaction() as tx:
        tx.put(Event(b"a"), deliver_after=1)
    (file,) = channel.engine().state.delays.files.values()
    files = deliveries_of(channel).files
    (frame,) = files.frames(file)
    with pytest.raises(CorruptionError):
        WaitingEvents(files, []).read_first([((0, frame.offset, 0), file.number)], {file.number: file}, 1 << 20)
