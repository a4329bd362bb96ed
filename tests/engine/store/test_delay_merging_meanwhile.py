"""What happens while waiting events are copied: deliveries, other copies, collections, clocks that jump, failures."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spillable_stream import Channel, Event, verify
from spillable_stream.engine.store import object_delay_merging
from spillable_stream.engine.store.object_delay_merging import DelayMerge, DelayMerging
from spillable_stream.integrity.findings import Severity
from spillable_stream.state.channel_state import Trimmed
from tests.support.delay_merging import files, open_with_clock, put_two
from tests.support.delays import deliver_all, deliveries_of, put_late
from tests.support.events import peek, take
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, store_of, stores_in_memory
from tests.support.store_limits import SetLimits


@pytest.fixture
def stores() -> Iterator[dict[str, MemoryStore]]:
    with stores_in_memory(FaultyStore) as stores:
        yield stores


@pytest.fixture(autouse=True)
def four_puts_are_many(set_limits: SetLimits) -> None:
    set_limits(many_puts=4, many_of_a_stretch=2)


def test_what_was_delivered_is_not_copied(stores: dict[str, MemoryStore], set_limits: SetLimits) -> None:
    channel, clock, merging = open_with_clock()
    set_limits(soon_ms=0)
    for number in range(4):
        put_two(channel, number)
    clock.pass_by(1_001.5)
    deliver_all(channel)
    merging.merge()
    assert sum(file.events for file in files(channel)) == 6
    clock.pass_by(1_000_000)
    deliver_all(channel)
    assert len(peek(channel)) == len(set(peek(channel))) == 8
    channel.close()


def copied_while(monkeypatch: pytest.MonkeyPatch, merging: DelayMerging, happens: Callable[[], object]) -> DelayMerge:
    """Copy objects together, with something that happens between the copy and its commit."""
    copied, made = merging._copied, list[DelayMerge]()

    def copied_meanwhile(*arguments: Any) -> DelayMerge | None:
        found = copied(*arguments)
        assert found is not None
        made.append(found)
        happens()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(merging, "_copied", copied_meanwhile)
        merging.merge()
    return made[0]


@pytest.mark.parametrize("passed", [1_001, 1_001.5, 1_002, 1_003])
def test_events_that_are_delivered_while_they_are_copied_come_once(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch, passed: float
) -> None:
    channel, clock, merging = open_with_clock()
    clock.begin_stretch(1_000)
    for number in range(4):
        put_two(channel, number)
    with Channel(URL, commit_interval=0) as other:
        deliveries_of(other).clock_ms = clock

        def deliver() -> None:
            clock.pass_by(passed)
            deliver_all(other)

        early = int(passed) - 999
        done = copied_while(monkeypatch, merging, deliver).done
        assert done
        assert sum(file.events for file in files(channel)) == 8 - early
        assert 0 not in [file.width_ms for file in files(channel)]
        assert channel.engine().state.delays.next_ms == min(file.next_ms for file in files(channel)) > clock.now_ms
        with Channel(URL, readonly=True) as view:
            assert files(view) == files(channel)
        clock.pass_by(1_000_000)
        deliver_all(other if early % 2 else channel)
        expected = [b"%d" % (seconds + i) for seconds in (1_000, 1_000_000) for i in range(4)]
        assert peek(channel) == expected
    assert not [found for found in verify(URL).findings if found.severity is Severity.DAMAGE]
    channel.close()


def test_a_copy_is_not_used_if_other_events_than_the_first_ones_were_delivered_meanwhile(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a handle delivers that has set an object aside, or delivers objects one after the other."""
    channel, clock, merging = open_with_clock()
    for number in range(4):
        put_two(channel, number)
    first = files(channel)[0].number
    with Channel(URL, commit_interval=0) as other:
        deliveries = deliveries_of(other)
        deliveries.clock_ms = clock
        deliveries._set_aside[first] = float("inf")

        def deliver() -> None:
            clock.pass_by(1_004)
            deliver_all(other)

        made = copied_while(monkeypatch, merging, deliver)
        assert not made.done
        assert sum(file.events for file in files(channel)) == 5
        assert {run.name for run in made.staged.runs}.isdisjoint(channel.engine().state.delays.names())
        merging.merge()
        deliver_all(channel)
        clock.pass_by(1_000_000)
        deliver_all(channel)
        assert sorted(peek(channel)) == sorted(
            b"%d" % (seconds + i) for seconds in (1_000, 1_000_000) for i in range(4)
        )
    channel.close()


def test_a_copy_is_not_used_if_another_handle_copied_meanwhile(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, clock, merging = open_with_clock()
    for number in range(4):
        put_two(channel, number)
    other, _, others = open_with_clock()
    made = copied_while(monkeypatch, merging, others.merge)
    assert not made.done
    other.close()
    clock.pass_by(2_000_000)
    deliver_all(channel)
    assert len(peek(channel)) == len(set(peek(channel))) == 8
    channel.close()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_handles_whose_clocks_are_years_apart_and_jump_deliver_each_event_once(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch, seed: int, set_limits: SetLimits
) -> None:
    monkeypatch.setattr(object_delay_merging, "_SMALL_BYTES", 3000)
    opened = [open_with_clock(overflow_capacity=100_000) for _ in range(3)]
    rng, number = random.Random(seed), 0
    set_limits(many_puts=3, worth_a_trim=1)
    for _ in range(200):
        channel, clock, _ = rng.choice(opened)
        match rng.choice(["put", "put", "deliver", "jump", "checkpoint"]):
            case "put":
                with channel.put_transaction() as tx:
                    for _ in range(rng.randrange(1, 6)):
                        number += 1
                        ttl = rng.choice([None, 10**9])
                        tx.put(Event(b"%d" % number), deliver_after=rng.choice([1, 100, 1e4, 1e6, 3e7]), ttl=ttl)
            case "deliver":
                deliver_all(channel)
            case "jump":
                clock.pass_by(rng.choice([-1, 1]) * rng.choice([1, 100, 1e4, 1e6, 3e8]))
            case "checkpoint":
                channel.checkpoint()
    channel, clock, _ = opened[0]
    clock.now_ms = max(file.next_ms for file in files(channel)) + 10**11
    deliver_all(channel)
    assert sorted(map(int, peek(channel))) == list(range(1, number + 1))
    assert files(channel) == []
    assert verify(URL).healthy
    for channel, _, _ in opened:
        channel.close()


def test_a_copy_that_a_collector_may_have_removed_is_not_used(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _, merging = open_with_clock()
    for number in range(4):
        put_two(channel, number)
    copied = merging._copied

    def copied_long_ago(*arguments: Any) -> DelayMerge | None:
        found = copied(*arguments)
        channel.engine().state.trimmed = Trimmed(-1, 100, -1)
        return found

    monkeypatch.setattr(merging, "_copied", copied_long_ago)
    before = files(channel)
    merging.merge()
    assert files(channel) == before
    channel.close()


def test_an_object_that_cannot_be_read_holds_no_checkpoint_and_no_other_object_back(
    stores: dict[str, MemoryStore], caplog: pytest.LogCaptureFixture
) -> None:
    channel, clock, _ = open_with_clock()
    clock.begin_stretch(10_000)
    for number in range(4):
        put_late(channel, 10_000 + number, b"%d" % number)
    del stores[URL].objects[files(channel)[1].name]
    channel.close()
    channel, clock, _ = open_with_clock()
    channel.checkpoint()
    assert "the object was removed" in caplog.text
    assert [file.events for file in files(channel)] == [1, 1, 1, 1]
    put_late(channel, 0, b"now")
    channel.checkpoint()
    assert sorted(file.events for file in files(channel)) == [1, 3]
    channel.close()


def test_an_object_that_the_store_refuses_holds_no_checkpoint_and_no_trim_back(
    stores: dict[str, MemoryStore], caplog: pytest.LogCaptureFixture, set_limits: SetLimits
) -> None:
    """As a store does with what a rule has moved to an archive."""
    channel, clock, _ = open_with_clock()
    set_limits(worth_a_trim=1)
    clock.begin_stretch(10_000)
    for number in range(4):
        put_late(channel, 10_000 + number, b"%d" % number)
    refused = files(channel)[1].name
    channel.engine().log.cache.clear()  # type: ignore[attr-defined]
    store_of(channel).schedule = lambda request: Fault.REFUSED if request.key == refused else None
    for _ in range(3):
        put_late(channel, 0, b"now")
        take(channel, 10)
        channel.checkpoint()
    assert "are not copied" in caplog.text
    assert sorted(file.events for file in files(channel)) == [1, 3]
    assert channel.engine().state.trimmed.through > 0
    channel.close()
