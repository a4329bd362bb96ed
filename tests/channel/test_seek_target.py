"""What a user may say about where to begin, and what that becomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spillable_stream import Channel, DataLossError, OptionError
from spillable_stream.channel.seek_target import chosen_position, event_id, time_of
from spillable_stream.state.channel_state import ChannelState
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    """A channel that keeps what is taken, of five events; a group has taken three."""
    channel = open_channel(retention_ms=3_600_000)
    for body in numbered(0, 5):
        put(channel, body)
    take(channel, 3, "g")
    return channel


def times(channel: Channel) -> list[datetime]:
    """Return when each event was put."""
    with channel.take_transaction("clock") as tx:
        found = [e.timestamp for e in tx.take_many(100)]
        tx.rollback()
    return [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(t * 1e6)) for t in found]


def position(channel: Channel, to: Any) -> int:
    choose = chosen_position(channel.engine(), to)
    with channel.engine().snapshot() as state:
        return choose(state)


@pytest.mark.parametrize(
    ("to", "expected"),
    [("earliest", 0), ("latest", 5), (1, 0), (3, 2), (6, 5), (np.int64(4), 3), (np.uint8(2), 1), ("3", 2), ("6", 5)],
    ids=repr,
)
def test_a_word_or_an_id_is_a_position(channel: Channel, to: Any, expected: int) -> None:
    assert position(channel, to) == expected


def test_a_time_is_the_position_before_the_first_event_put_then_or_later(channel: Channel) -> None:
    put_at = times(channel)
    assert [position(channel, t) for t in put_at] == [0, 1, 2, 3, 4]
    just_after = timedelta(microseconds=1)
    assert [position(channel, t + just_after) for t in put_at] == [1, 2, 3, 4, 5]
    assert position(channel, put_at[2].astimezone(timezone(timedelta(hours=-7)))) == 2
    assert position(channel, pd.Timestamp(put_at[3])) == 3
    assert position(channel, datetime.min.replace(tzinfo=UTC)) == 0
    assert position(channel, datetime.max.replace(tzinfo=UTC)) == 5


def test_a_timedelta_is_how_long_ago_by_the_wall_clock(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    put_at = times(channel)
    now = put_at[-1] + timedelta(seconds=10)
    monkeypatch.setattr(time, "time_ns", lambda: round(now.timestamp() * 1e6) * 1000)
    assert position(channel, now - put_at[2]) == 2
    assert position(channel, timedelta(hours=1)) == position(channel, pd.Timedelta("1h")) == 0
    assert position(channel, timedelta(0)) == 5
    assert position(channel, timedelta.max) == 0


def test_a_group_does_not_begin_at_a_time_to_come_since_it_would_take_what_is_put_before(channel: Channel) -> None:
    to_come = datetime(3000, 1, 1, tzinfo=UTC)
    with pytest.raises(OptionError, match=r"can't begin at 3000-01-01T00:00:00\+00:00, which is in the future: "):
        channel.seek("g", to_come)
    assert list(channel.read(to_come)) == []  # a read takes nothing later
    with pytest.raises(OptionError, match=r"can't begin at 253,402,304,400 s since 1970, which is in the future: "):
        channel.seek("g", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))))


def test_a_time_before_the_first_kept_event_is_that_events(open_channel: Open) -> None:
    channel = open_channel()
    for body in numbered(0, 5):
        put(channel, body)
    took = times(channel)
    channel.drop_group("clock")
    take(channel, 3)
    assert [position(channel, t) for t in took] == [3, 3, 3, 3, 4]


def test_events_that_leave_after_a_time_was_looked_up_are_passed_over(open_channel: Open) -> None:
    channel = open_channel()
    for body in numbered(0, 5):
        put(channel, body)
    choose = chosen_position(channel.engine(), timedelta(hours=1))
    take(channel, 4)
    with channel.engine().snapshot() as state:
        assert choose(state) == 4


def test_an_id_is_checked_when_the_position_is_chosen(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    choose = chosen_position(channel.engine(), 2)
    take(channel, 4)

    def chosen() -> int:
        with channel.engine().snapshot() as state:
            assert isinstance(state, ChannelState)
            return choose(state)

    with pytest.raises(DataLossError, match=r"the events 2 to 4 have left .* the first event that it keeps is 5\."):
        chosen()


def test_a_time_back_from_now_may_be_a_text(channel: Channel) -> None:
    for text in ("1h", "60 m", "3600s"):
        for to in (text, timedelta(hours=1)):
            choose = chosen_position(channel.engine(), to)
            with channel.engine().snapshot() as state:
                assert choose(state) == 0
    assert [batch.num_rows for batch in channel.read("1h", "1ms")] == [5]


@pytest.mark.parametrize(
    ("to", "why"),
    [
        (datetime(2026, 1, 1), "is a time without a zone: give it one"),
        (pd.Timestamp("2026-01-01"), "is a time without a zone"),
        (pd.NaT, "NaT is not a time"),
        (timedelta(seconds=-1), "a timedelta says how far back from now, and .* is negative"),
        (0, "no event has the ID 0: the first event of .* was 1"),
        (-3, "no event has the ID -3"),
        (7, "the event 7 is after the next event of .*, 6, where 'latest' begins"),
        (True, "begins at True: give 'earliest', 'latest', a write-order ID"),
        (np.True_, "begins at"),
        (3.0, "begins at 3.0"),
        ("-3", "begins at '-3'"),
        ("3.0", "begins at '3.0'"),
        ("٣", "begins at"),
        pytest.param("3" * 5000, "begins at '333", id="digits"),
        ("Earliest", "begins at 'Earliest'"),
        (date(2026, 1, 1), "begins at datetime.date"),
        (None, "begins at None"),
        ([1], "begins at"),
    ],
    ids=repr,
)
def test_anything_else_is_refused_in_a_clear_sentence(channel: Channel, to: Any, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        position(channel, to)


def test_an_id_may_come_from_any_library() -> None:
    assert [event_id(v) for v in (3, np.int64(3), "3", True, np.True_, "3.0", 3.0, None)] == [3, 3, 3] + [None] * 5


def test_a_time_is_told_to_the_microsecond() -> None:
    assert time_of(datetime(1970, 1, 2, 0, 0, 0, 1, tzinfo=UTC)) == 86_400_000_001
