from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from spillable_stream import Channel, ChannelFullError
from spillable_stream.engine.telemetry import Samples
from spillable_stream.state.channel_state import ChannelState, GroupState
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


def test_rates_are_of_the_last_minute_and_know_groups_that_came_later(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    state, samples, clock = channel.engine().state, Samples(), [1000.0]
    monkeypatch.setattr("spillable_stream.engine.telemetry.time.time", lambda: clock[0])
    samples.record(state, now=True)
    clock[0] += 100
    put(channel, *numbered(0, 50))
    peek(channel, 1)
    samples.record(channel.engine().follow(), now=True)
    clock[0] += 10
    put(channel, *numbered(0, 100))
    take(channel, 120)
    rates = samples.rates(channel.engine().follow())
    assert (rates.put, rates.taken, rates.seconds) == (10, 12, 10)


def test_an_hour_of_samples_of_many_groups_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    state, samples, clock = ChannelState({"memory_capacity": 0}, []), Samples(), [1000.0]
    state.groups = {f"group {i}": GroupState(0) for i in range(1_000)}
    monkeypatch.setattr("spillable_stream.engine.telemetry.time.time", lambda: clock[0])
    tracemalloc.start()
    try:
        for _ in range(600):
            clock[0] += 1
            state.groups["group 7"].position += 3
            samples.record(state, now=True)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 2_000_000
    assert len(samples.all()) == 600
    assert samples.rates(state).taken == 3


def test_rates_are_right_where_groups_come_go_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state, samples, clock = ChannelState({"memory_capacity": 0}, []), Samples(), [1000.0]
    monkeypatch.setattr("spillable_stream.engine.telemetry.time.time", lambda: clock[0])
    state.groups = {"a": GroupState(100)}
    samples.record(state, now=True)
    clock[0] += 10
    state.groups = {"b": GroupState(10), "a": GroupState(100)}
    samples.record(state, now=True)
    clock[0] += 10
    state.groups = {"b": GroupState(50), "a": GroupState(0), "c": GroupState(1000)}
    assert samples.rates(state).taken == 2
    samples.record(state, now=True)
    clock[0] += 55
    state.groups["c"].ahead.add(1002, 1111)
    assert samples.rates(state).taken == 2  # since the second sample, 65 s ago, has left
    clock[0] += 100
    assert samples.rates(state) == (0, 0, 0)
