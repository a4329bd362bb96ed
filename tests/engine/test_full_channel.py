"""What a put is told that finds no room, and when."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, ChannelFullError, PutTooLargeError
from spillable_stream.engine import full_channel
from spillable_stream.errors import MemoryTierWarning
from tests.support.clocks import by_hand
from tests.support.events import numbered, put, take
from tests.support.groups import make_automatic

Open = Callable[..., Channel]


def test_a_full_channel_names_the_groups_that_nobody_reads_as_and_how_to_drop_them(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=10, keep_alive=0)
    put(channel, *numbered(0, 10))
    for i in range(1, 6):
        make_automatic(channel, f"auto-{i}", planned=i)
    take(channel, 10)
    with pytest.raises(ChannelFullError) as caught:
        put(channel, *numbered(0, 2))
    assert (
        "Nobody reads as 'auto-1' (9 to take) and 'auto-2' (8 to take) and 'auto-3' (7 to take), and 2 more like it"
    ) in str(caught.value)
    assert "drop it with Channel.drop_group('auto-1'). To continue, take events" in str(caught.value)
    channel.drop_group("auto-1")
    put(channel, b"x")


def test_a_full_channel_does_not_name_groups_that_have_taken_everything_or_have_an_owner(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=10, keep_alive=0)
    put(channel, *numbered(0, 10))
    make_automatic(channel, "auto-b", planned=0, owned=True)
    make_automatic(channel, "auto-a", planned=10)
    with pytest.raises(ChannelFullError) as caught:
        put(channel, b"x")
    assert "Nobody reads" not in str(caught.value)
    assert "auto-b has 10 to take" in str(caught.value)


def test_a_full_channel_of_many_groups_names_those_with_most_to_take(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=30, keep_alive=0)
    put(channel, *numbered(0, 30))
    channel.consumer("g0")
    for i in range(1, 31):
        take(channel, i, f"g{i}")
    with pytest.raises(ChannelFullError, match=r"g0 has 30 to take, g1 has 29 to take, .*, and 11 other groups\. "):
        put(channel, b"x")


@pytest.mark.parametrize("jump_seconds", [3600, -3600])
def test_a_full_channel_says_the_age_by_the_clocks_setting_now(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, jump_seconds: int
) -> None:
    channel = open_channel(overflow_capacity=1, keep_alive=0, retention_ms=86_400_000)
    retention, clocks = by_hand(channel)
    put(channel, b"a")
    retention.look()
    clocks.pass_by(60_000)
    clocks.wall_us += jump_seconds * 1_000_000
    retention.look()
    monkeypatch.setattr(full_channel.time, "time", lambda: clocks.wall_us / 1e6)
    with pytest.raises(ChannelFullError, match=r"the oldest event's age is 60 s"):
        put(channel, b"b")


def test_a_full_channel_says_no_age_below_zero(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(overflow_capacity=1, keep_alive=0)
    put(channel, b"a")
    before_seconds = time.time() - 3600
    monkeypatch.setattr(full_channel.time, "time", lambda: before_seconds)
    with pytest.raises(ChannelFullError, match=r"the oldest event's age is 0 s"):
        put(channel, b"b")


def test_a_memory_only_channel_without_memory_says_why(path: Path, open_channel: Open) -> None:
    channel = open_channel(
        memory_capacity=10, overflow_capacity=0, memory_dir=str(path.parent / "missing"), keep_alive=0
    )
    with (
        pytest.warns(MemoryTierWarning, match=r"missing is missing.*puts find no room"),
        pytest.raises(
            ChannelFullError, match=r"there is no memory tier \(.*missing is missing.*\), and overflow_capacity is 0"
        ),
    ):
        put(channel, b"x")


def test_a_full_channel_names_both_tiers_the_rates_the_lag_and_the_option(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=5, overflow_timeout=0, keep_alive=0)
    put(channel, *numbered(0, 10))
    put(channel, *numbered(0, 5))
    take(channel, 2, "readers")
    put(channel, *numbered(0, 1))
    with pytest.raises(ChannelFullError) as caught:
        put(channel, *numbered(0, 4))
    message = str(caught.value)
    for said in (
        "4 events do not fit (440 bytes)",
        "memory holds 9 of memory_capacity 10 events and",
        "disk holds 5 of overflow_capacity 5 events",
        "events/s were put and",
        "the oldest event's age is",
        "readers has 14 to take",
        "take events, or raise overflow_capacity",
    ):
        assert said in message


def test_a_full_channel_says_what_it_holds_and_what_to_do(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=10, keep_alive=0.05)
    put(channel, *numbered(0, 8))
    with pytest.raises(ChannelFullError) as caught:
        put(channel, *numbered(8, 3))
    message = str(caught.value)
    assert "3 events do not fit" in message and "disk holds 8 of overflow_capacity 10 events" in message
    assert "Waited 0." in message and "take events, or raise overflow_capacity" in message
    take(channel, 1)
    put(channel, *numbered(8, 3))
    assert channel.stats().channel_size == 10


def test_a_transaction_larger_than_the_channel_does_not_wait(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=10, keep_alive=1e9)
    with pytest.raises(PutTooLargeError, match=r"11 events do not fit .* at most 10 events.* put fewer at once"):
        put(channel, *numbered(0, 11))
