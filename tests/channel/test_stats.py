from __future__ import annotations

from collections.abc import Callable

from spillable_stream import Channel
from tests.events import numbered, peek, put, take

Open = Callable[..., Channel]


def test_an_empty_channel(open_channel: Open) -> None:
    stats = open_channel(overflow_capacity=50).stats()
    assert (stats.channel_size, stats.channel_capacity, stats.channel_fill_percentage, stats.oldest_age_seconds) == (
        0,
        50,
        0,
        None,
    )
    assert (stats.first_id, stats.last_id, stats.disk.payload_bytes, stats.groups, stats.sinks) == (1, 0, 0, {}, {})
    assert (stats.data_files, stats.segments, stats.torn_bytes) == (1, 0, 0)


def test_a_filled_one(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=50)
    put(channel, *numbered(0, 20))
    take(channel, 5, "a")
    peek(channel, 2, "b")
    stats = channel.stats()
    assert (stats.channel_size, stats.channel_fill_percentage, stats.first_id, stats.last_id) == (15, 30, 6, 20)
    assert stats.oldest_age_seconds is not None and 0 <= stats.oldest_age_seconds < 60
    assert stats.disk.payload_bytes > 0
    assert {n: (g.position, g.lag) for n, g in stats.groups.items()} == {"a": (5, 15), "b": (5, 15)}


def test_what_is_taken_ahead_of_an_open_take_counts(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    with channel.take_transaction() as slow:
        slow.take_many(4)
        assert take(channel, 3) == numbered(4, 3)
        stats = channel.stats()
        assert (stats.channel_size, stats.groups["default"].position, stats.groups["default"].lag) == (7, 0, 7)
        slow.rollback()
