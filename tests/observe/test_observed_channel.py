"""One channel that is looked at again and again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.observe.observed_channel import ObservedChannel
from tests.support.channels import three_puts
from tests.support.clocks import by_hand
from tests.support.damage import flip, log_file
from tests.support.events import numbered, put, take
from tests.support.expiry import WallClock, put_for

Open = Callable[..., Channel]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_look_shows_what_other_handles_did_and_how_fast(open_channel: Open, path: Path) -> None:
    channel, clock = open_channel(), Clock()
    observed = ObservedChannel(path, clock)
    first = observed.look()
    assert first.stats is not None and first.rates is None and not first.own and not first.problem
    put(channel, *numbered(0, 30))
    take(channel, 10, "a")
    clock.now += 5
    seen = observed.look()
    assert seen.stats is not None and seen.stats.groups["a"].lag == 20
    assert seen.rates is not None and (seen.rates.puts, seen.rates.syncs > 0) == (6.0, True)
    put(channel, b"31")
    take(channel, 5, "a")
    clock.now += 1
    seen = observed.look()
    assert seen.rates is not None and seen.taken["a"] == 5 and seen.rates.group_takes["a"] == 5.0
    observed.close()


def test_a_group_that_went_back_has_taken_nothing_and_counts_up_again(open_channel: Open, path: Path) -> None:
    channel, clock = open_channel(retention_ms=3_600_000), Clock()
    observed = ObservedChannel(channel, clock)
    put(channel, *numbered(0, 10))
    take(channel, 1, "a")
    observed.look()
    take(channel, 9, "a")
    assert observed.look().taken == {"a": 9}
    channel.seek("a", timedelta(hours=1))
    assert observed.look().taken == {"a": 9}
    take(channel, 4, "a")
    assert observed.look().taken == {"a": 13}
    channel.drop_group("a")
    assert observed.look().taken == {}


def test_events_that_left_untaken_or_that_a_seek_passed_are_not_taken(open_channel: Open) -> None:
    channel, clock = open_channel(retention_ms=3_600_000, retention_untaken="drop"), Clock()
    retention, clocks = by_hand(channel)
    observed = ObservedChannel(channel, clock)
    put(channel, *numbered(0, 10))
    take(channel, 1, "dead")
    take(channel, 1, "sought")
    observed.look()
    channel.seek("sought", "latest")
    clock.now += 1
    seen = observed.look()
    assert seen.rates is not None and (seen.taken["sought"], seen.rates.group_takes["sought"]) == (0, 0.0)
    clocks.pass_by(3_601_000)
    assert retention.look()
    seen = observed.look()
    assert seen.stats is not None and seen.stats.groups["dead"].removed == ((2, 10),)
    assert seen.taken == {"dead": 0, "sought": 0}
    put(channel, *numbered(10, 3))
    take(channel, 3, "dead")
    take(channel, 2, "sought")
    assert observed.look().taken == {"dead": 3, "sought": 2}


def test_events_that_expired_are_not_taken(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, now = open_channel(), WallClock(monkeypatch)
    observed = ObservedChannel(channel, Clock())
    put_for(channel, 10, *numbered(0, 7))
    put_for(channel, None, *numbered(7, 3))
    take(channel, 1, "a")
    observed.look()
    now.pass_by(11)
    take(channel, 2, "a")
    seen = observed.look()
    assert seen.stats is not None and (seen.taken, seen.stats.groups["a"].expired_events) == ({"a": 2}, 6)


def test_a_handle_of_the_program_stays_open_and_is_known_as_its_own(open_channel: Open) -> None:
    channel = open_channel()
    observed = ObservedChannel(channel, Clock())
    assert observed.look().own
    observed.close()
    assert channel.stats().channel_size == 0


def test_a_missing_channel_says_so_until_it_is_there(open_channel: Open, path: Path) -> None:
    clock = Clock()
    observed = ObservedChannel(path, clock)
    seen = observed.look()
    assert seen.stats is None and seen.problem == f"NotAChannelError: {path} is not a channel: it is missing"
    open_channel()
    assert observed.look().stats is None, "not sooner than after a pause"
    clock.now += 1
    assert observed.look().stats is not None


def test_damage_is_told_from_a_channel_that_is_missing(path: Path) -> None:
    assert not ObservedChannel(path, Clock()).look().damaged
    three_puts(path)
    flip(log_file(path), 8)
    seen = ObservedChannel(path, Clock()).look()
    assert seen.damaged and "CorruptionError" in seen.problem


def test_a_channel_that_is_removed_fails_and_the_next_one_there_is_found(path: Path) -> None:
    clock = Clock()
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    observed = ObservedChannel(path, clock)
    assert observed.look().stats is not None
    shutil.rmtree(path)
    seen = observed.look()
    assert seen.stats is None and "Error: " in seen.problem
    with Channel(path, minimum_required_space=0):
        clock.now += 60
        seen = observed.look()
        assert seen.stats is not None and seen.rates is None
        observed.close()


def test_the_pause_after_failures_doubles_up_to_half_a_minute(path: Path) -> None:
    clock = Clock()
    observed = ObservedChannel(path, clock)
    tried = []
    for _ in range(100):
        before = observed._failed_at
        observed.look()
        if observed._failed_at != before:
            tried.append(clock.now)
        clock.now += 1
    assert [b - a for a, b in pairwise(tried)] == [1, 2, 4, 8, 16, 30, 30]


def test_a_clock_that_is_set_back_ends_the_pause(open_channel: Open, path: Path) -> None:
    clock = Clock()
    observed = ObservedChannel(path, clock)
    assert observed.look().stats is None
    open_channel()
    clock.now -= 365 * 86_400
    assert observed.look().stats is not None
    observed.close()


def test_a_directory_that_is_missing_says_itself_what_to_do_and_a_channel_that_is_does_not(tmp_path: Path) -> None:
    with Channel(tmp_path / "channel"):
        pass
    shutil.rmtree(tmp_path / "channel" / "data")
    found, missing = (ObservedChannel(str(tmp_path / name), Clock()).look() for name in ("channel", "missing"))
    assert (
        f"the data directory {tmp_path}/channel/data of the channel {tmp_path}/channel is not proven" in found.problem
    )
    assert (found.advised, missing.advised, missing.missing) == (True, False, True)
    part = ObservedChannel(str(tmp_path / "channel" / "checkpoint"), Clock()).look()
    assert part.advised and part.problem.endswith(f"is a directory of a channel: give {tmp_path}/channel")
