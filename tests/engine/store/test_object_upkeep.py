"""What happens in time to a channel in an object store, by which of its handles, and at what cost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from spillable_stream import Channel, log_records
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.store import object_upkeep
from spillable_stream.engine.store.object_ownership import ANSWER_SECONDS
from spillable_stream.engine.store.object_upkeep import UPKEEP, ObjectUpkeep
from spillable_stream.errors import OptionError
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.identity import QUERIES, WORKERS
from tests.support.clocks import Clocks
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Fault, Schedule
from tests.support.groups import make_automatic
from tests.support.object_channels import OwnersClock, kill, lose_slots, require_told_once, store_of
from tests.support.object_logs import FakeTime

Open = Callable[..., Channel]

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """The clock of all handles, none of which looks by itself."""
    time = FakeTime()
    for module in (object_upkeep, log_records):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic))
    monkeypatch.setattr(object_upkeep, "_PERIOD_SECONDS", 3600.0)
    return time


def upkeep_of(channel: Channel) -> ObjectUpkeep:
    upkeep = channel.engine().upkeep
    assert isinstance(upkeep, ObjectUpkeep)
    return upkeep


def clocks_of(channel: Channel) -> Clocks:
    """Return the clocks by which the channel's events leave from now on."""
    retention = upkeep_of(channel)._retention
    retention.read_clocks = clocks = Clocks(retention)
    return clocks


def threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("spillable upkeep")


def thread_ends(channel: Channel) -> None:
    """Let the thread of a handle that is to be killed end; a killed process has none."""
    upkeep_of(channel)._thread.end()


def first_kept(channel: Channel) -> int:
    return channel.engine().follow().first_kept


# ── what is done ────────────────────────────────────────────────────────────────────────────────


def test_taken_events_leave_when_they_are_older_than_the_limit_and_a_checkpoint_is_due(open_handle: Open) -> None:
    channel = open_handle(retention_ms=HOUR_MS)
    clocks, upkeep = clocks_of(channel), upkeep_of(channel)
    put(channel, *numbered(0, 3))
    take(channel)
    put(channel, b"3")
    clocks.pass_by(HOUR_MS - 60_000)
    upkeep.run_once()
    assert first_kept(channel) == 1
    clocks.pass_by(61_000)
    upkeep.run_once()
    assert first_kept(channel) == 4
    checkpoints = [r for r in store_of(channel).requests if r.key.startswith("checkpoints/")]
    channel.engine().checkpointing.create_if_due()
    assert len(checkpoints) < len([r for r in store_of(channel).requests if r.key.startswith("checkpoints/")])


def test_an_automatic_group_without_an_owner_is_dropped_after_its_time(open_handle: Open, time: FakeTime) -> None:
    channel = open_handle(auto_group_ttl=300)
    put(channel, *numbered(0, 3))
    make_automatic(channel, "auto-a")
    make_automatic(channel, "auto-b", owned=True)
    upkeep = upkeep_of(channel)
    upkeep.run_once()
    for expected in ({"auto-a", "auto-b"},) * 4 + ({"auto-b"},):
        time.now += 60
        upkeep.run_once()
        assert set(channel.engine().follow().groups) == expected


def test_an_owner_that_comes_and_goes_between_two_looks_is_seen(open_handle: Open, time: FakeTime) -> None:
    channel, other = open_handle(auto_group_ttl=300), open_handle()
    make_automatic(channel, "auto-a")
    upkeep = upkeep_of(channel)
    for _ in range(5):
        upkeep.run_once()
        time.now += 60
    Consumer(other.engine(), "auto-a", resume=True).close()
    for expected in ({"auto-a"},) * 5 + (set(),):
        upkeep.run_once()
        assert set(channel.engine().follow().groups) == expected
        time.now += 60


def test_looks_at_many_groups_ask_the_store_as_little_as_at_one(open_handle: Open, time: FakeTime) -> None:
    asked = []
    channel = open_handle()
    for i in range(20):
        make_automatic(channel, f"auto-{i}")
        if i in (0, 19):
            upkeep_of(channel).run_once()
            time.now += 60
            requests = store_of(channel).requests
            before = len(requests)
            upkeep_of(channel).run_once()
            time.now += 30
            channel.close(checkpoint=False)
            asked.append(len(requests) - before)
            channel = open_handle()
    assert asked[1] <= asked[0] + 5


def test_an_owner_that_comes_and_goes_while_nobody_looks_is_seen(open_handle: Open, time: FakeTime) -> None:
    channel = open_handle(auto_group_ttl=36_000)
    make_automatic(channel, "auto-a")
    for _ in range(6):
        upkeep_of(channel).run_once()
        time.now += 600
    channel.close()
    other = open_handle()
    assert other.engine().follow().groups["auto-a"].idle_ms > 0
    Consumer(other.engine(), "auto-a", resume=True).close()
    assert other.engine().follow().groups["auto-a"].idle_ms == 0


def test_the_time_without_an_owner_adds_up_over_handles_that_are_open_for_a_short_time_each(
    open_handle: Open, time: FakeTime
) -> None:
    channel = open_handle(auto_group_ttl=36_000)
    make_automatic(channel, "auto-a")
    opens = 0
    while opens < 130 and channel.engine().follow().groups:
        upkeep = upkeep_of(channel)
        for _ in range(6):
            upkeep.run_once()
            time.now += 60
        channel.close()
        channel = open_handle()
        opens += 1
    assert opens * 300 - 300 <= 36_000 <= opens * 360


@pytest.mark.parametrize("by_hand", [False, True])
def test_nothing_is_left_of_an_automatic_group_that_is_dropped(
    open_handle: Open, time: FakeTime, *, by_hand: bool
) -> None:
    channel = open_handle(auto_group_ttl=300)
    make_automatic(channel, "auto-a")
    store = store_of(channel)
    for prefix in (QUERIES, WORKERS):
        store.replace(f"{prefix}auto-a", b"a query's, and a worker's")
    if by_hand:
        channel.drop_group("auto-a")
    upkeep = upkeep_of(channel)
    upkeep.run_once()
    for _ in range(5):
        time.now += 60
        upkeep.run_once()
    assert not channel.engine().follow().groups
    assert not [*store.list(QUERIES), *store.list(WORKERS)]


def test_a_failure_is_logged_once_a_minute_and_tried_again(
    open_handle: Open, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_handle(retention_ms=HOUR_MS)
    upkeep = upkeep_of(channel)
    store_of(channel).schedule = lambda _: Fault.UNAVAILABLE
    channel.engine().log._appending.backoff = Backoff(0)  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING):
        assert upkeep.run_once() and upkeep.run_once()
        assert caplog.text.count("stay in s3://bucket/orders for now") == 1
        time.now += 61
        assert upkeep.run_once()
    assert caplog.text.count("stay in s3://bucket/orders for now") == 2
    store_of(channel).schedule = None
    upkeep.run_once()
    assert upkeep._acting is not None


def test_a_refusal_is_logged_once_until_it_goes_well_again_and_tried_once_a_minute(
    open_handle: Open, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_handle(retention_ms=HOUR_MS)
    upkeep, store = upkeep_of(channel), store_of(channel)
    refuse: Schedule = lambda request: Fault.REFUSED if request.kind == "create" else None  # noqa: E731
    before = store.counts["create"]
    with caplog.at_level(logging.WARNING):
        store.schedule = lambda _: Fault.UNAVAILABLE
        upkeep.run_once()
        assert caplog.text.count("stay in s3://bucket/orders for now") == 1
        store.schedule = refuse
        for tries in range(1, 4):
            for _ in range(12):
                assert upkeep.run_once()
            assert store.counts["create"] - before == tries
            time.now += 61
        assert caplog.text.count("stay in s3://bucket/orders until the store allows it (open a handle that only") == 1
        store.schedule = None
        upkeep.run_once()
        assert upkeep._acting is not None
        upkeep._acting.close()
        store.schedule = refuse
        time.now += 61
        upkeep.run_once()
    assert caplog.text.count("stay in s3://bucket/orders until") == 2


def test_a_loss_that_is_found_by_upkeep_waits_for_the_next_call(
    open_handle: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_handle(retention_ms=HOUR_MS)
    upkeep = upkeep_of(channel)
    lose_slots(channel)
    assert upkeep._thread._warning.is_due()
    assert upkeep.run_once()
    require_told_once(channel, caplog)


# ── who does it ─────────────────────────────────────────────────────────────────────────────────


def test_one_of_two_handles_acts_and_the_other_asks_for_it_once_a_minute(
    open_handle: Open, time: FakeTime, owners_clock: OwnersClock
) -> None:
    channel, other = open_handle(retention_ms=HOUR_MS), open_handle()
    put(channel, b"0")
    take(channel)
    upkeep_of(channel).run_once()
    owners_clock.meanwhile = channel.engine().owners.answer_claims  # type: ignore[attr-defined]
    clocks_of(other).pass_by(2 * HOUR_MS)
    upkeep_of(other).run_once()
    assert (upkeep_of(other)._acting, first_kept(other)) == (None, 1)
    claims = store_of(other).counts["create"]
    for _ in range(10):
        time.now += 5
        upkeep_of(other).run_once()
    assert store_of(other).counts["create"] == claims
    time.now += 11
    upkeep_of(other).run_once()
    assert store_of(other).counts["create"] == claims + 1
    clocks_of(channel).pass_by(2 * HOUR_MS)
    upkeep_of(channel).run_once()
    assert first_kept(other) == 2


def test_when_the_handle_that_acts_is_closed_another_one_acts_at_once(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    channel, other = open_handle(retention_ms=HOUR_MS), open_handle()
    upkeep_of(channel).run_once()
    channel.close()
    upkeep_of(other).run_once()
    assert upkeep_of(other)._acting is not None
    assert owners_clock.slept == []


def test_a_handle_that_was_killed_acts_no_more_once_another_one_had_no_answer(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    channel, other = open_handle(retention_ms=HOUR_MS), open_handle()
    upkeep_of(channel).run_once()
    thread_ends(channel)
    kill(channel)
    upkeep_of(other).run_once()
    assert upkeep_of(other)._acting is not None
    assert sum(owners_clock.slept) >= ANSWER_SECONDS


def test_who_lost_it_while_it_slept_does_nothing_until_it_has_it_again(
    open_handle: Open, owners_clock: OwnersClock
) -> None:
    sleeper, other = open_handle(retention_ms=HOUR_MS), open_handle()
    put(sleeper, b"0")
    take(sleeper)
    upkeep_of(sleeper).run_once()
    upkeep_of(other).run_once()
    owners_clock.meanwhile = other.engine().owners.answer_claims  # type: ignore[attr-defined]
    clocks_of(sleeper).pass_by(2 * HOUR_MS)
    upkeep_of(sleeper).run_once()
    assert (upkeep_of(sleeper)._acting, first_kept(sleeper)) == (None, 1)


def test_what_acts_is_not_a_group(open_handle: Open) -> None:
    channel = open_handle(retention_ms=HOUR_MS)
    upkeep_of(channel).run_once()
    assert channel.stats().groups == {}
    with pytest.raises(OptionError):
        channel.consumer(UPKEEP)


# ── what it costs ───────────────────────────────────────────────────────────────────────────────


def test_a_channel_that_needs_none_has_no_thread(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    take(channel)
    assert (threads(), upkeep_of(channel)._thread.is_needed()) == (0, False)


@pytest.mark.parametrize("need", ["retention", "group"])
def test_the_thread_begins_with_the_need_and_ends_with_the_handle(open_handle: Open, need: str) -> None:
    channel = open_handle(**({"retention_bytes": 1 << 20} if need == "retention" else {}))
    put(channel, *numbered(0, 3))
    if need == "group":
        make_automatic(channel, "auto-a")
        channel.close()
        channel = open_handle()
    assert threads() == 1
    upkeep_of(channel).ensure()
    assert threads() == 1
    upkeep = upkeep_of(channel)
    channel.close()
    assert threads() == 0
    upkeep.ensure()
    assert (threads(), upkeep.run_once()) == (0, False)


def test_a_handle_that_only_looks_has_none(open_handle: Open) -> None:
    open_handle(retention_ms=HOUR_MS).close()
    open_handle(readonly=True, commit_interval=None, gc_delay=None, checkpoint_on_close=None)
    assert threads() == 0


def test_a_group_that_goes_back_while_events_are_let_go_keeps_them(open_handle: Open) -> None:
    """The append that lets them go is lost to the seek, and is planned again on what the seek left."""
    one, other = open_handle(retention_ms=HOUR_MS), open_handle()
    clocks, retention = clocks_of(one), upkeep_of(one)._retention
    put(one, *numbered(0, 4))
    assert take(other) == numbered(0, 4)
    retention.look()
    clocks.pass_by(2 * HOUR_MS)
    planned = one.engine().log.append

    def after_a_seek(*arguments: object) -> object:
        one.engine().log.append = planned
        other.seek("default", 2)
        return planned(*arguments)

    one.engine().log.append = after_a_seek
    assert retention.look()
    assert take(other) == numbered(1, 3), "only the event that it did not go back to has left"
