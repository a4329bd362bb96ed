from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.log.event_reader import EventReader
from tests.support.events import numbered, put

Open = Callable[..., Channel]


def test_a_take_looks_once_at_the_log_and_says_what_it_will_read(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put(channel, *[bytes(200_000)] * 2)
    put(channel, *[bytes(200_000)] * 2)
    put(channel, b"alone")
    engine, asked, expected = channel.engine(), list[int](), list[list[int]]()
    consumer, position = channel.consumer("g"), engine.log.position
    monkeypatch.setattr(engine.log, "position", lambda: (asked.append(1), position())[1])
    monkeypatch.setattr(
        EventReader, "expect", lambda _, extents: expected.append([extent.first_id for extent in extents])
    )
    assert len(consumer.read(consumer.claim(4))) == 2
    assert (len(asked), expected) == (1, [[1, 3]])
    consumer.read(consumer.claim(1))
    assert (len(asked), expected) == (2, [[1, 3]]), "of one extent, nothing is to be said"


@pytest.mark.parametrize("taken_before", [0, 4])
def test_events_that_a_flush_moves_before_the_first_is_read_are_read_where_they_are_now(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, taken_before: int
) -> None:
    channel, other = open_channel(memory_capacity=100), open_channel(memory_capacity=100)
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    ranges = [(1, taken_before)] if taken_before else []
    readers, find = channel.engine().readers, channel.engine().readers.get

    def get(*arguments: Any) -> EventReader:
        if other.stats().memory.events and len(asked) == len(ranges):
            other.flush()
            other.checkpoint()
            readers.clear()  # what was open of memory
        asked.append(arguments)
        return find(*arguments)

    asked: list[Any] = []
    monkeypatch.setattr(readers, "get", get)
    found = consumer.read([*ranges, (7, 10)])
    assert not other.stats().memory.events, "the events were moved while they were read"
    assert [(read.first_id, read.last_id) for read in found] == [*ranges, (7, 10)]
    consumer.close()
