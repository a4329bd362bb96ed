"""What a query has yet to take, and how old that is."""

from __future__ import annotations

from collections.abc import Callable

import spillable_stream as ss
from spillable_stream.spark.progress.lag import Lag
from tests.support.clocks import by_hand
from tests.support.events import numbered, put, take

Open = Callable[..., ss.Channel]


def test_the_lag_begins_after_what_a_batch_covers_or_the_group_has_taken(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    take(channel, 4, "g")
    state = channel.engine().state
    assert Lag.beyond(state, "g", 2).events == 6
    assert Lag.beyond(state, "g", 7).events == 3
    assert Lag.beyond(state, "g", 10) == Lag(0, None)


def test_a_group_that_was_dropped_has_everything_before_it_that_is_left(open_channel: Open) -> None:
    channel = open_channel()
    channel.consumer("slow")
    put(channel, *numbered(0, 10))
    assert Lag.beyond(channel.engine().state, "dropped", 0).events == 10


def test_the_lag_is_as_old_as_the_clocks_setting_now_says(open_channel: Open) -> None:
    channel = open_channel(retention_ms=86_400_000)
    retention, clocks = by_hand(channel)
    put(channel, b"a")
    before = Lag.beyond(channel.engine().state, None, 0).put_time_us
    retention.look()
    clocks.pass_by(60_000)
    clocks.wall_us += 3_600_000_000
    retention.look()
    assert before is not None
    assert Lag.beyond(channel.engine().state, None, 0) == Lag(1, before + 3_600_000_000)
