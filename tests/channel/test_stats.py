from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, ChannelFullError, KeptStats
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from tests.support.events import numbered, peek, put, take

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


def test_a_group_has_the_age_of_the_first_event_that_it_has_yet_to_take(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))
    take(channel, 1, "behind")
    take(channel, 2, "done")
    groups = channel.stats().groups
    assert groups["done"].oldest_age_seconds is None
    age = groups["behind"].oldest_age_seconds
    assert age is not None and 0 <= age < 60


def test_appends_to_disk_and_transactions_are_counted_whoever_made_them(open_channel: Open, path: Path) -> None:
    channel, other = open_channel(memory_capacity=5, overflow_timeout=0), open_channel()
    with Channel(path, create=False, readonly=True) as looking:
        put(channel, b"1")
        before = looking.stats()
        put(channel, *numbered(0, 4))
        in_memory = looking.stats()
        put(other, b"6")
        put(channel, b"7")
        on_disk = looking.stats()
        made = channel.stats()
    assert in_memory.transactions == before.transactions + 1
    assert in_memory.disk_appends == before.disk_appends, "memory is not synced"
    assert on_disk.disk_appends - in_memory.disk_appends == 2
    assert on_disk.transactions == in_memory.transactions + 2
    assert made.disk_appends >= made.counters.disk_syncs + 1, "its own, and the other's"


def test_what_is_taken_ahead_of_an_open_take_counts(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    with channel.take_transaction() as slow:
        slow.take_many(4)
        assert take(channel, 3) == numbered(4, 3)
        stats = channel.stats()
        assert (stats.channel_size, stats.groups["default"].position, stats.groups["default"].lag) == (7, 0, 7)
        slow.rollback()


def test_a_handle_counts_what_it_puts_and_takes_under_flumes_names(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=5, overflow_timeout=0, keep_alive=0)
    put(channel, *numbered(0, 10))
    put(channel, *numbered(0, 4))
    with pytest.raises(ChannelFullError):
        put(channel, *numbered(0, 6))
    assert len(take(channel, 12)) == 12
    peek(channel, 1)
    counters = channel.stats().flume_counters()
    expected = {
        "ChannelSize": 2,
        "ChannelCapacity": 15,
        "EventPutAttemptCount": 20,
        "EventPutSuccessCount": 14,
        "EventPutErrorCount": 1,
        "EventTakeAttemptCount": 13,
        "EventTakeSuccessCount": 12,
        "EventTakeErrorCount": 0,
        "CheckpointWriteErrorCount": 0,
        "MemoryEvents": 0,
        "DiskEvents": 2,
        "SpilledTransactions": 1,
        "OverflowActive": 0,
        "Unhealthy": 0,
    }
    assert {name: counters[name] for name in expected} == expected
    assert counters["ChannelFillPercentage"] == pytest.approx(100 * 2 / 15)
    assert counters["GroupCommits"] == counters["GroupedCommits"] == 4
    assert open_channel().stats().counters.event_put_success_count == 0  # of this handle alone
    assert open_channel().stats().spilled_transactions == 1


def test_kept_events_are_counted_by_themselves(open_channel: Open) -> None:
    channel = open_channel(retention_ms=3_600_000, overflow_capacity=50)
    put(channel, *numbered(0, 20))
    take(channel, 5, "a")
    stats = channel.stats()
    assert (stats.kept.events, stats.kept.first_id, stats.first_id) == (5, 1, 6)
    assert (stats.channel_size, stats.disk.events, stats.channel_fill_percentage) == (15, 15, 30)
    assert 0 < stats.kept.payload_bytes < stats.disk.payload_bytes
    assert stats.kept.oldest_age_seconds is not None and 0 <= stats.kept.oldest_age_seconds < 60
    take(channel, 15, "a")
    whole = channel.stats().kept
    assert (whole.events, whole.payload_bytes) == (20, stats.kept.payload_bytes + stats.disk.payload_bytes)
    channel.engine().commit(Control(FrameType.RETENTION, {"through": 4}))
    left = channel.stats().kept
    assert (left.events, left.first_id) == (16, 5) and left.payload_bytes < whole.payload_bytes
    counters = channel.stats().flume_counters()
    assert (counters["KeptEvents"], counters["KeptPayloadBytes"]) == (16, left.payload_bytes)


def test_events_for_a_group_that_went_back_are_kept_until_it_has_taken_them(open_channel: Open) -> None:
    channel = open_channel(retention_ms=3_600_000)
    put(channel, *numbered(0, 10))
    take(channel, 6, "g")
    channel.seek("g", "earliest")
    open_channel(retention_ms=0)
    stats = channel.stats()
    assert (stats.kept.events, stats.kept.first_id, stats.channel_size, stats.groups["g"].lag) == (6, 1, 4, 10)
    assert take(channel, 4, "g") == numbered(0, 4)
    assert (channel.stats().kept.events, channel.stats().kept.first_id) == (2, 5)
    assert take(channel, 4, "g") == numbered(4, 4)
    assert channel.stats().kept == KeptStats(0, 0, 9, None)


def test_a_channel_that_keeps_nothing_says_so(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    take(channel, 4)
    assert channel.stats().kept == KeptStats(0, 0, 5, None)


@pytest.mark.parametrize("memory", [{"memory_capacity": 4, "overflow_timeout": 0}, {"memory_capacity": 100}])
def test_kept_events_are_counted_in_both_tiers(open_channel: Open, memory: Any) -> None:
    channel = open_channel(retention_ms=3_600_000, **memory)
    for i in range(0, 12, 4):
        put(channel, *numbered(i, 4))
    take(channel, 10)
    stats = channel.stats()
    assert (stats.kept.events, stats.kept.first_id, stats.channel_size) == (10, 1, 2)
    assert stats.memory.events + stats.disk.events == 2


def test_a_group_says_whose_it_is_and_what_was_removed_for_it(open_channel: Open) -> None:
    channel = open_channel(retention_ms=3_600_000, retention_untaken="drop")
    put(channel, *numbered(0, 10))
    channel.port().create_group("a", "earliest", automatic=True)
    channel.port().create_group("g", "latest")
    channel.engine().commit(Control(FrameType.RETENTION, {"through": 3}))
    groups = channel.stats().groups
    assert (groups["a"].is_automatic, groups["a"].removed, groups["a"].lag) == (True, ((1, 3),), 7)
    assert (groups["g"].is_automatic, groups["g"].removed) == (False, ())
