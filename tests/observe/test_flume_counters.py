"""Flume's JSON."""

from __future__ import annotations

from collections.abc import Callable

from spillable_stream import Channel
from spillable_stream.observe.flume_counters import flume_counters
from spillable_stream.observe.observation import Observation
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


def filled(open_channel: Open) -> Channel:
    channel = open_channel(overflow_capacity=40)
    put(channel, *numbered(0, 20))
    take(channel, 10)
    return channel


def test_a_channel_has_flumes_names_and_strings_as_values(open_channel: Open) -> None:
    stats = filled(open_channel).stats()
    found = flume_counters([Observation("/data/orders/", 2.0, stats, own=True)], 1.5)
    assert list(found) == ["CHANNEL.orders"]
    values = found["CHANNEL.orders"]
    assert all(type(value) is str for value in values.values())
    assert (values["Type"], values["StartTime"], values["StopTime"]) == ("CHANNEL", "1500", "0")
    assert (values["ChannelSize"], values["ChannelCapacity"], values["ChannelFillPercentage"]) == ("10", "40", "25")
    assert (values["EventPutAttemptCount"], values["EventPutSuccessCount"]) == ("20", "20")
    assert (values["EventTakeAttemptCount"], values["EventTakeSuccessCount"]) == ("10", "10")


def test_of_a_channel_that_others_write_the_counts_are_everybodys(open_channel: Open) -> None:
    stats = filled(open_channel).stats()
    values = flume_counters([Observation("c", 2.0, stats, taken={"a": 7, "b": 2})], 1.0)["CHANNEL.c"]
    assert (values["EventPutSuccessCount"], values["EventTakeSuccessCount"]) == ("20", "9")


def test_channels_of_one_name_have_their_paths_and_those_that_fail_are_left_out(open_channel: Open) -> None:
    stats = filled(open_channel).stats()
    seen = [Observation("/a/c", 2.0, stats), Observation("/b/c", 2.0, stats), Observation("/c/d", 2.0, problem="gone")]
    assert list(flume_counters(seen, 1.0)) == ["CHANNEL./a/c", "CHANNEL./b/c"]
