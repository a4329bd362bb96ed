"""Rates between two looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spillable_stream import Channel, ChannelStats
from spillable_stream.channel.stats import GroupStats
from spillable_stream.observe.observation import Observation, rates_between
from tests.support.events import numbered, put

Open = Callable[..., Channel]


def looks(open_channel: Open) -> tuple[ChannelStats, ChannelStats]:
    """Return the statistics of a channel before and after 20 events in two transactions."""
    channel = open_channel()
    before = channel.stats()
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 10))
    return before, channel.stats()


def test_rates_are_differences_by_the_time_between_the_looks(open_channel: Open) -> None:
    before, after = looks(open_channel)
    after = replace(after, spilled_transactions=before.spilled_transactions + 8)
    first = Observation("c", 100.0, before, taken={"a": 5, "gone": 9})
    rates = rates_between(first, after, 104.0, {"a": 13, "new": 4})
    assert rates is not None
    assert (rates.seconds, rates.puts, rates.spills, rates.transactions, rates.syncs) == (4.0, 5.0, 2.0, 0.5, 0.5)
    assert (rates.group_takes, rates.takes) == ({"a": 2.0, "new": 1.0}, 2.0)


def test_without_two_looks_at_one_channel_there_are_no_rates(open_channel: Open) -> None:
    before, after = looks(open_channel)
    assert rates_between(Observation("c", 100.0), after, 104.0, {}) is None
    assert rates_between(Observation("c", 100.0, before), after, 100.0, {}) is None
    assert rates_between(Observation("c", 100.0, before), replace(after, channel="another"), 104.0, {}) is None


def test_a_rate_is_never_negative(open_channel: Open) -> None:
    before, after = looks(open_channel)
    rates = rates_between(Observation("c", 100.0, after, taken={"a": 5}), before, 101.0, {"a": 0})
    assert rates is not None
    assert min(rates.puts, rates.takes, rates.spills, rates.syncs, rates.transactions) == 0


def test_what_waits_for_a_first_group_ages_without_a_lag(open_channel: Open) -> None:
    """The page said that nothing waited in a channel that nobody had taken from."""
    before, after = looks(open_channel)
    waiting = Observation("c", 100.0, replace(after, oldest_age_seconds=7.0, groups={}))
    assert (waiting.oldest_age_seconds, waiting.largest_lag) == (7.0, None)
    groups = {"a": GroupStats(4, 36, 2, oldest_age_seconds=90.0), "b": GroupStats(40, 0, 0)}
    behind = Observation("c", 100.0, replace(after, oldest_age_seconds=7.0, groups=groups))
    assert (behind.oldest_age_seconds, behind.largest_lag) == (90.0, 36)
    assert Observation("c", 100.0, before).oldest_age_seconds is None
    assert Observation("c", 100.0).oldest_age_seconds is None is Observation("c", 100.0).largest_lag
