"""Where a micro-batch ends."""

from __future__ import annotations

from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.spark.source import latest_offset
from spillable_stream.spark.source.latest_offset import batch_end, latest_event_id
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.state.ranges import Range
from tests.support.expiry import WallClock
from tests.support.one_module import replace_in
from tests.support.spark.sources import batches, named_source, put, source


def test_max_events_per_trigger_cuts_across_transactions(channel: ss.Channel) -> None:
    put(channel, 3, 4, 3)
    assert batches(source(channel, maxEventsPerTrigger=4)) == [(1, 4), (5, 8), (9, 10)]


def test_events_that_are_gone_do_not_count_towards_a_limit(channel: ss.Channel) -> None:
    put(channel, 10)
    consumer = channel.consumer("default")
    consumer.commit([(2, 7)])
    consumer.close()
    channel._open.owned.consumers.clear()
    assert batches(named_source(channel, maxEventsPerTrigger=2)) == [(1, 8), (9, 10)]


def test_what_is_left_of_the_channel_may_be_nothing_to_read(channel: ss.Channel) -> None:
    put(channel, 10)
    consumer = channel.consumer("default")
    consumer.commit([(4, 10)])
    consumer.close()
    channel._open.owned.consumers.clear()
    reader = named_source(channel, maxEventsPerTrigger=3)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert end["writeOrderId"] == 10, "it ends where the group's position goes on to"
    assert reader.partitions(start, end)
    reader.commit(end)
    assert reader.initialOffset()["writeOrderId"] == 10
    assert reader.latestOffset(end) == end


def test_max_bytes_per_trigger_reads_one_large_event_at_least(channel: ss.Channel) -> None:
    put(channel, 1, 1, 1, body=b"x" * 5_000)
    assert batches(source(channel, maxBytesPerTrigger=10)) == [(1, 1), (2, 2), (3, 3)]


def test_the_smaller_of_two_limits_counts(channel: ss.Channel) -> None:
    put(channel, *[1] * 6, body=b"x" * 5_000)
    assert batches(source(channel, maxBytesPerTrigger=20_000, maxEventsPerTrigger=2)) == [(1, 2), (3, 4), (5, 6)]


def test_min_events_per_trigger_waits_for_so_many(channel: ss.Channel) -> None:
    put(channel, 3)
    reader = source(channel, minEventsPerTrigger=5)
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    put(channel, 2)
    assert reader.latestOffset(start)["writeOrderId"] == 5


def test_max_trigger_delay_ends_the_wait(channel: ss.Channel) -> None:
    put(channel, 3)
    assert batches(source(channel, minEventsPerTrigger=5, maxTriggerDelay="0s")) == [(1, 3)]


def test_the_wait_ends_though_the_clock_was_set_back_by_an_hour(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    replace_in(monkeypatch, latest_offset, "time", time=lambda: clock.now_ns / 1e9)
    put(channel, 3)
    reader = source(channel, minEventsPerTrigger=5, maxTriggerDelay="1s")
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    clock.pass_by(-3600)
    assert reader.latestOffset(start)["writeOrderId"] == 3


def test_the_next_events_wait_as_long_again(channel: ss.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though they lie beside those of the batch before, the time of which does not count."""
    clock = WallClock(monkeypatch)
    replace_in(monkeypatch, latest_offset, "time", time=lambda: clock.now_ns / 1e9)
    put(channel, 3)
    reader = source(channel, minEventsPerTrigger=5, maxTriggerDelay="1s")
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    clock.pass_by(1.1)
    end = reader.latestOffset(start)
    assert end["writeOrderId"] == 3
    reader.partitions(start, end)
    put(channel, 1)
    assert reader.latestOffset(end) == end
    assert reader.reportLatestOffset()["oldestPutTimeMicros"] / 1e6 == pytest.approx(clock.now_ns / 1e9, abs=0.3)
    clock.pass_by(1.1)
    assert reader.latestOffset(end)["writeOrderId"] == 4


def end_of(channel: ss.Channel, untaken: list[Range], begin: int, last: int, **options: Any) -> int:
    with channel.engine().snapshot() as state:
        return batch_end(state, untaken, begin, last, StreamOptions.of(options))


def test_without_a_limit_a_batch_ends_with_the_last_event_that_it_may_have(channel: ss.Channel) -> None:
    put(channel, 10)
    assert end_of(channel, [(1, 10)], 0, 10) == 10
    assert end_of(channel, [(1, 7)], 0, 7) == 7


def test_events_that_others_took_are_passed_over_where_nothing_else_is_left(channel: ss.Channel) -> None:
    put(channel, 10)
    assert end_of(channel, [], 3, 10, max_events_per_trigger=2, min_events_per_trigger=50) == 10


def test_a_limit_counts_events_that_are_left_and_ends_right_before_those_that_are_not(channel: ss.Channel) -> None:
    put(channel, 20)
    left = [(1, 3), (8, 10), (15, 20)]
    ends = [end_of(channel, left, 0, 20, max_events_per_trigger=n) for n in (1, 2, 3, 4, 6, 7, 12, 13)]
    assert ends == [1, 2, 7, 8, 14, 15, 20, 20]


def test_a_limit_in_bytes_ends_with_the_event_that_reaches_it(channel: ss.Channel) -> None:
    put(channel, *[1] * 4, body=b"x" * 5_000)
    with channel.engine().snapshot() as state:
        one = state.blocks.payload_bytes(1, 1)
    ends = [end_of(channel, [(1, 4)], 0, 4, max_bytes_per_trigger=size) for size in (1, one, 2 * one, 3 * one, 9 * one)]
    assert ends == [1, 1, 2, 3, 4]
    assert end_of(channel, [(1, 1), (3, 4)], 0, 4, max_bytes_per_trigger=2 * one) == 3


def test_too_few_events_are_not_a_batch_until_they_have_waited_long_enough(channel: ss.Channel) -> None:
    put(channel, 3)
    few = {"min_events_per_trigger": 4}
    assert end_of(channel, [(1, 3)], 0, 3, **few) == 0
    assert end_of(channel, [(1, 3)], 0, 3, **few, max_trigger_delay=0.0) == 3
    put(channel, 1)
    assert end_of(channel, [(1, 4)], 0, 4, **few) == 4


def test_events_whose_time_is_not_known_are_not_waited_for(channel: ss.Channel) -> None:
    put(channel, 3)
    assert end_of(channel, [(7, 8)], 6, 8, min_events_per_trigger=5) == 8


def test_a_run_with_an_end_goes_up_to_it_and_waits_for_no_more_events(channel: ss.Channel) -> None:
    put(channel, 10)

    def latest(begin: int, target: int | None, *, everything: bool = False) -> int:
        options = StreamOptions.of({"max_events_per_trigger": 4, "min_events_per_trigger": 20})
        with channel.engine().snapshot() as state:
            return latest_event_id(state, lambda a, b: [(a, b)], begin, options, target=target, everything=everything)

    assert latest(0, None) == 0, "too few"
    assert latest(0, 7) == 4 and latest(4, 7) == 7 and latest(8, 7) == 8
    assert latest(0, None, everything=True) == 10 and latest(0, 7, everything=True) == 7
