"""The times of events that a processor puts: their ttl, and when they are due, in each channel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import OptionError
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.processor import ChannelProcessor
from tests.support.delays import clock_of
from tests.support.events import peek, take
from tests.support.expiry import WallClock
from tests.support.failing_puts import Upper
from tests.support.flow_batches import STILL


def timed(body: bytes, **headers: str) -> Event:
    return Event(body, headers)


def delayed(channel: Channel) -> int:
    return channel.stats().delayed.events


def test_events_wait_and_expire_in_each_channel_as_it_says(
    channels: dict[str, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    now = replace(STILL, now_ms=lambda: clock.now_ns // 1_000_000)
    times = {"c1": EventTimes(ttl=60, ttl_header="ttl"), "c2": EventTimes(deliver_after_header="after")}
    with ChannelProcessor(channels, producer="a1.r1", surroundings=now, times=times) as processor:
        for _ in range(2):  # the second is a repetition
            batch = [timed(b"1", ttl="5", after="90"), timed(b"2"), timed(b"3", after="80")]
            assert processor.process(batch, number=1).stored == {"c1": 3, "c2": 3, "c3": 3}
    assert [delayed(channel) for channel in channels.values()] == [0, 2, 0]
    assert peek(channels["c2"]) == [b"2"]
    clock.pass_by(6)
    assert take(channels["c1"]) == [b"2", b"3"]
    clock.pass_by(90)
    assert take(channels["c2"]) == [b"2"] and take(channels["c2"]) == [b"3", b"1"]
    assert peek(channels["c3"]) == [b"1", b"2", b"3"]


def test_a_repetition_does_not_extend_a_delay(channels: dict[str, Channel]) -> None:
    clock = clock_of(*channels.values())
    now = replace(STILL, now_ms=clock)
    with ChannelProcessor(channels, surroundings=now, times={"c1": EventTimes(deliver_after=5)}) as processor:
        begun_ms, routed = clock.now_ms, processor.route([Event(b"1")])
        clock.pass_by(3)
        processor.deliver(routed)
    assert channels["c1"].stats().delayed.next_due == (begun_ms + 5000) / 1000


def test_an_event_with_a_wrong_time_is_a_dead_letter_of_that_channel_alone(
    channels: dict[str, Channel], tmp_path: Path
) -> None:
    wrong = [timed(b"1"), timed(b"2", ttl="soon"), timed(b"3", ttl="60")]
    with (
        Channel(tmp_path / "dead") as dead,
        ChannelProcessor(
            channels, producer="a1.r1", dead_letter=dead, times={"c1": EventTimes(ttl_header="ttl")}
        ) as processor,
    ):
        done = processor.process(wrong)
        assert (done.passed, done.dead, done.stored) == (3, 1, {"c1": 2, "c2": 3, "c3": 3, "deadLetter": 1})
        assert peek(channels["c1"]) == [b"1", b"3"]
        with dead.take_transaction() as tx:
            (letter,) = tx.take_many(2)
        assert letter.headers["deadletter.component"] == "a1.r1/ttl"
        assert "the header ttl is 'soon'" in letter.headers["deadletter.error"]
        done = processor.process([timed(b"4", ttl="0")])
        assert done.stored == {"c2": 1, "c3": 1, "deadLetter": 1}


def test_without_dead_letters_an_event_with_a_wrong_time_stops_its_batch(channels: dict[str, Channel]) -> None:
    processor = ChannelProcessor(channels, times={"c1": EventTimes(ttl_header="ttl")})
    with processor, pytest.raises(OptionError, match="the header ttl is 'soon'; it must be seconds"):
        processor.process([timed(b"1"), timed(b"2", ttl="soon")])
    assert "the header ttl is 'soon'" in processor.stuck.why
    assert [peek(channel) for channel in channels.values()] == [[], [], []]


def test_dead_letters_do_not_wait_where_the_events_of_their_channel_do(channels: dict[str, Channel]) -> None:
    times = {"c1": EventTimes(deliver_after=60, ttl=1e-6)}
    with ChannelProcessor(channels, [Upper()], dead_letter=channels["c1"], times=times) as processor:
        processor.process([Event(b"good"), Event(b"bad"), Event(b"good")])
    assert delayed(channels["c1"]) == 2
    assert peek(channels["c1"]) == [b"bad"]


def test_times_that_a_channel_cannot_have_are_refused_at_once(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", overflow_capacity=0, memory_capacity=9) as channel:
        with pytest.raises(OptionError, match="has no disk tier"):
            ChannelProcessor({"c": channel}, times={"c": EventTimes(deliver_at_header="at")})
        with pytest.raises(OptionError, match="times are for 'd', and the channels are c"):
            ChannelProcessor({"c": channel}, times={"d": EventTimes(ttl=1)})
        ChannelProcessor({"c": channel}, times={"c": EventTimes(ttl=1)})
