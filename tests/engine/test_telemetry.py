"""What a handle remembers of its channel's recent past: rates, in little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine import telemetry
from spillable_stream.engine.requests import Control
from spillable_stream.engine.telemetry import Samples
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import RetentionRecord
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from tests.support.events import numbered, peek, put, take
from tests.support.expiry import WallClock, put_for
from tests.support.one_module import replace_in

Open = Callable[..., Channel]

MIB = 1 << 20


def test_rates_are_of_the_last_minute_and_know_groups_that_came_later(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    state, samples, clock = channel.engine().state, Samples(), [1000.0]
    replace_in(monkeypatch, telemetry, "time", time=lambda: clock[0])
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


def test_what_a_seek_passed_and_what_expired_was_not_taken(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, now, clock = open_channel(), WallClock(monkeypatch), [1000.0]
    samples = Samples()
    put_for(channel, 10, *numbered(0, 50))
    put_for(channel, None, *numbered(50, 50))
    take(channel, 10, "expiring")
    take(channel, 10, "sought")
    replace_in(monkeypatch, telemetry, "time", time=lambda: clock[0])
    samples.record(channel.engine().follow(), now=True)
    now.pass_by(11)
    take(channel, 20, "expiring")
    channel.seek("sought", "latest")
    clock[0] += 10
    assert samples.rates(channel.engine().follow()).taken == 2


def test_what_left_before_it_was_taken_was_not_taken(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, clock, samples = open_channel(retention_bytes=MIB, retention_untaken="drop"), [1000.0], Samples()
    peek(channel)
    put(channel, *numbered(0, 50))
    replace_in(monkeypatch, telemetry, "time", time=lambda: clock[0])
    samples.record(channel.engine().follow(), now=True)
    channel.engine().commit(Control(FrameType.RETENTION, RetentionRecord(through=30)))
    clock[0] += 10
    assert samples.rates(channel.engine().follow()).taken == 0
    take(channel, 20)
    assert samples.rates(channel.engine().follow()).taken == 2, "a take forgets which events had left"


def test_what_left_counts_as_little_once_a_view_was_loaded_anew(open_channel: Open) -> None:
    """A view is, whenever the last writer leaves; the state that it loads does not say what left unread."""
    channel = open_channel(retention_bytes=MIB, retention_untaken="drop")
    peek(channel)
    put(channel, *numbered(0, 50))
    view = open_channel(readonly=True)
    assert view.stats().take_rate == 0
    channel.engine().commit(Control(FrameType.RETENTION, RetentionRecord(through=30)))
    assert view.stats().take_rate == 0
    channel.close(checkpoint=True)
    assert (view.stats().groups["default"].position, view.stats().take_rate) == (30, 0)


def test_rates_are_those_since_the_clock_was_set_back(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel()
    samples, clock = Samples(), [10_000.0]
    replace_in(monkeypatch, telemetry, "time", time=lambda: clock[0])
    samples.record(channel.engine().state, now=True)
    put(channel, *numbered(0, 1000))
    take(channel, 500)
    clock[0] += 10
    samples.record(channel.engine().follow(), now=True)
    clock[0] -= 3600
    assert samples.rates(channel.engine().follow()) == (0, 0, 0), "nothing is known since then"
    samples.record(channel.engine().follow(), now=True)
    clock[0] += 10
    put(channel, *numbered(0, 100))
    take(channel, 50)
    assert samples.rates(channel.engine().follow()) == (10, 5, 10)


def test_an_hour_of_samples_of_many_groups_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    state, samples, clock = ChannelState(ChannelOptions(memory_capacity=0), []), Samples(), [1000.0]
    state.groups = {f"group {i}": GroupState(0) for i in range(1_000)}
    replace_in(monkeypatch, telemetry, "time", time=lambda: clock[0])
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
    state, samples, clock = ChannelState(ChannelOptions(memory_capacity=0), []), Samples(), [1000.0]
    replace_in(monkeypatch, telemetry, "time", time=lambda: clock[0])
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
