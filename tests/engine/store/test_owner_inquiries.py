"""Automatic groups whose owner died on another host: found out by a claim, and by no clock but one's own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from spillable_stream import Channel
from spillable_stream.engine.store import object_upkeep, owner_inquiries
from spillable_stream.engine.store.object_upkeep import ObjectUpkeep
from tests.support.events import numbered, put
from tests.support.groups import make_automatic
from tests.support.object_channels import OwnersClock, kill, store_of

Open = Callable[..., Channel]
TTL_SECONDS = 600


@pytest.fixture(autouse=True)
def clock(owners_clock: OwnersClock, monkeypatch: pytest.MonkeyPatch) -> OwnersClock:
    """The clock of all handles, none of which looks by itself."""
    for module in (object_upkeep, owner_inquiries):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=owners_clock.monotonic))
    monkeypatch.setattr(object_upkeep, "_PERIOD_SECONDS", 3600.0)
    return owners_clock


def upkeep_of(channel: Channel) -> ObjectUpkeep:
    upkeep = channel.engine().upkeep
    assert isinstance(upkeep, ObjectUpkeep)
    return upkeep


def pass_by(channel: Channel, clock: OwnersClock, seconds: int, each: Callable[[], object] = lambda: None) -> int:
    """Let time pass while a handle looks after the channel; return when the group was gone, 0 if it is not."""
    for second in range(0, seconds, 5):
        clock.now += 5
        each()
        upkeep_of(channel).run_once()
        if "auto" not in channel.engine().follow().groups:
            return second + 5
    return 0


def test_the_group_of_a_stream_that_was_killed_on_another_host_is_dropped_after_its_time(
    open_handle: Open, clock: OwnersClock
) -> None:
    channel, stream = open_handle(auto_group_ttl=TTL_SECONDS), open_handle()
    put(channel, *numbered(0, 3))
    make_automatic(stream, "auto", owned=True)
    kill(stream)
    gone = pass_by(channel, clock, 2000)
    assert TTL_SECONDS < gone <= TTL_SECONDS * 1.25 + 120, "a question, and looks now and then"


def test_a_stream_that_has_nothing_to_take_and_answers_keeps_its_group(open_handle: Open, clock: OwnersClock) -> None:
    channel, stream = open_handle(auto_group_ttl=TTL_SECONDS), open_handle()
    put(channel, *numbered(0, 3))
    make_automatic(stream, "auto", owned=True)
    before = store_of(channel).counts["create"] + store_of(stream).counts["create"]
    assert not pass_by(channel, clock, 3000, stream.engine().owners.answer_claims)  # type: ignore[attr-defined]
    asked = store_of(channel).counts["create"] + store_of(stream).counts["create"] - before
    assert 0 < asked <= 2 * 3000 // (TTL_SECONDS // 4) + 1, "a question and an answer, a few times"


def test_a_stream_that_takes_is_not_asked(open_handle: Open, clock: OwnersClock) -> None:
    channel, stream = open_handle(auto_group_ttl=TTL_SECONDS), open_handle()
    put(channel, *numbered(0, 100))
    make_automatic(stream, "auto", owned=True)
    consumer = stream.consumer("auto")
    upkeep_of(channel).run_once()
    before, taken = store_of(channel).counts["create"], iter(range(2, 100))

    def take_now_and_then() -> None:
        if int(clock.now) % 60 == 0:
            event = next(taken)
            consumer.commit([(event, event)])

    assert not pass_by(channel, clock, 2000, take_now_and_then)
    assert store_of(channel).counts["create"] == before


def test_an_owner_that_comes_back_late_has_lost_nothing_that_it_committed(
    open_handle: Open, clock: OwnersClock
) -> None:
    """It slept through the question, and answers before the group's time is over."""
    channel, stream = open_handle(auto_group_ttl=TTL_SECONDS), open_handle()
    put(channel, *numbered(0, 3))
    make_automatic(stream, "auto", owned=True)
    assert not pass_by(channel, clock, 400)
    stream.engine().owners.answer_claims()  # type: ignore[attr-defined]
    assert not pass_by(channel, clock, 400)
    stream.consumer("auto").commit([(2, 2)])
    assert channel.stats().groups["auto"].position == 2


def test_a_look_alone_asks_nobody(open_handle: Open, clock: OwnersClock) -> None:
    channel, stream = open_handle(auto_group_ttl=TTL_SECONDS), open_handle()
    put(channel, b"0")
    make_automatic(stream, "auto", owned=True)
    before = store_of(channel).counts["create"]
    for _ in range(10):
        clock.now += 1000
        assert channel.engine().owners.look("auto").is_alive
    assert store_of(channel).counts["create"] == before
