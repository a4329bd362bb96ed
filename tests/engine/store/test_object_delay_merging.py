"""Objects of delayed events are copied together: few wait, whatever was put, and each event still comes once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from spillable_stream import Channel, Event
from spillable_stream.engine.store import object_delay_merging
from spillable_stream.engine.store.object_delay_merging import _of_like_size
from spillable_stream.format.dues import stretch_of
from spillable_stream.format.packing import pack
from spillable_stream.state.delays import DelayedFile
from tests.lab.size import sized
from tests.support.delay_merging import files, open_with_clock, put_two
from tests.support.delays import deliver_all, put_late
from tests.support.events import peek
from tests.support.faulty_store import FaultyStore
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


def test_what_many_puts_delayed_is_copied_by_stretches_of_time(stores: dict[str, MemoryStore]) -> None:
    channel, clock, merging = open_with_clock()
    clock.begin_stretch(1_000)
    for number in range(4):
        put_two(channel, number)
    assert [file.width_ms for file in files(channel)] == [0] * 4
    merging.merge()
    first, second = files(channel)
    assert (first.events, second.events) == (4, 4)
    assert 0 < first.width_ms < second.width_ms
    assert first.begin_ms <= first.next_ms < first.begin_ms + first.width_ms
    assert channel.stats().delayed.events == 8
    clock.pass_by(2_000)
    deliver_all(channel)
    assert peek(channel) == [b"%d" % seconds for seconds in range(1_000, 1_004)]
    clock.pass_by(1_000_000)
    deliver_all(channel)
    assert peek(channel)[4:] == [b"%d" % seconds for seconds in range(1_000_000, 1_000_004)]
    assert files(channel) == []
    channel.close()


def test_large_puts_are_copied_though_they_are_few(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _, merging = open_with_clock()
    for number in range(2):
        put_two(channel, number)
    merging.merge()
    assert [file.width_ms for file in files(channel)] == [0, 0]
    monkeypatch.setattr(object_delay_merging, "_MANY_BYTES", sum(file.payload_bytes for file in files(channel)))
    merging.merge()
    assert 0 not in [file.width_ms for file in files(channel)]
    channel.close()


def test_objects_of_one_stretch_become_one_and_few_puts_stay(stores: dict[str, MemoryStore]) -> None:
    channel, clock, merging = open_with_clock()
    clock.begin_stretch(10_000)
    for i in range(3):
        put_two(channel, i)
    before = files(channel)
    merging.merge()
    assert files(channel) == before
    for i in range(3):
        put_late(channel, 10_000 + i, b"%d" % i)
    merging.merge()
    assert [file.events for file in files(channel)] == [2, 2, 2, 3]
    assert len({file.number for file in (*before, *files(channel))}) == 4
    with Channel(URL) as again:
        assert files(again) == files(channel)
    channel.close()


def test_events_that_are_due_at_once_keep_the_order_of_their_puts_whichever_were_copied(
    stores: dict[str, MemoryStore],
    set_limits: SetLimits,
) -> None:
    channel, clock, merging = open_with_clock()
    at = datetime.fromtimestamp(clock.now_ms // 1000 + 100_000, UTC)
    for number in range(15):
        with channel.put_transaction() as tx:
            tx.put(Event(b"%d" % number), deliver_at=at)
            if number % 5 == 2:  # it is left where it is
                tx.put(Event(b"soon"), deliver_after=1)
        if number % 5 == 4:
            merging.merge()
    set_limits(many_of_a_stretch=2)
    merging.merge()
    assert len(files(channel)) < 8
    clock.pass_by(100_001)
    deliver_all(channel)
    assert [body for body in peek(channel) if body != b"soon"] == [b"%d" % i for i in range(15)]
    channel.close()


def test_what_is_due_soon_stays_where_it_is(stores: dict[str, MemoryStore]) -> None:
    channel, clock, merging = open_with_clock()
    clock.begin_stretch(100)
    for _ in range(3):
        put_late(channel, 100, b"a")
    clock.pass_by(41)
    merging.merge()
    assert len(files(channel)) == 3
    clock.pass_by(-2)
    merging.merge()
    assert len(files(channel)) == 1
    channel.close()


def test_large_puts_that_always_have_some_event_that_is_due_soon_are_copied(stores: dict[str, MemoryStore]) -> None:
    channel, clock, merging = open_with_clock(overflow_capacity=100_000)
    rng = random.Random(1)
    for number in range(24):
        with channel.put_transaction() as tx:
            for _ in range(300):  # one every 12 s
                tx.put(Event(b"%d" % number), deliver_after=rng.uniform(1, 3_600))
        clock.pass_by(20)
        deliver_all(channel)
        if number % 4 == 3:
            merging.merge()
    assert sum(file.width_ms == 0 for file in files(channel)) < 8
    clock.pass_by(3_600)
    deliver_all(channel)
    assert (len(peek(channel)), files(channel)) == (24 * 300, [])
    channel.close()


def test_what_was_delayed_for_long_is_divided_again_when_its_time_comes_near(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each delivery of a month would read what is due in all of the month."""
    day, rng = 86_400, random.Random(1)
    channel, clock, merging = open_with_clock(overflow_capacity=100_000)
    for _ in range(8):
        with channel.put_transaction() as tx:
            tx.put_many([Event(b"at the end of its stretch")], deliver_after=300 * day)
            for _ in range(100):
                tx.put(Event(b"a"), deliver_after=rng.uniform(200, 230) * day)
    merging.merge()
    widest_ms = max(file.width_ms for file in files(channel))
    clock.pass_by(199 * day)
    before = files(channel)
    merging.merge()
    assert files(channel) == before, "it is little"
    monkeypatch.setattr(object_delay_merging, "_MANY_BYTES", 1000)
    for _ in range(3):
        merging.merge()
    for file in files(channel):
        assert file.width_ms <= 8 * stretch_of(file.next_ms, clock.now_ms)[1]
    assert min(file.width_ms for file in files(channel)) < widest_ms // 8
    clock.pass_by(200 * day)
    deliver_all(channel)
    assert (len(peek(channel)), files(channel)) == (8 * 101, [])
    channel.close()


def test_objects_that_are_too_large_in_memory_are_copied_in_parts_or_not(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    channel, _, merging = open_with_clock()
    for number in range(4):
        put_two(channel, number)
    monkeypatch.setattr(object_delay_merging, "_MOST_BYTES_IN_MEMORY", 150)
    merging.merge()
    assert sum(file.width_ms == 0 for file in files(channel)) == 2
    monkeypatch.setattr(object_delay_merging, "_MOST_BYTES_IN_MEMORY", 1)
    set_limits(many_puts=2)
    before = files(channel)
    for _ in range(2):
        merging.merge()
    assert files(channel) == before
    channel.close()


def test_a_checkpoint_copies_and_has_the_old_objects_deleted(stores: dict[str, MemoryStore]) -> None:
    channel, _, _ = open_with_clock()
    for number in range(4):
        put_two(channel, number)
    old = channel.engine().state.delays.names()
    for _ in range(2):
        put_late(channel, 0, b"now")
        channel.checkpoint()
    assert old.isdisjoint(stores[URL].objects)
    assert channel.engine().state.delays.names() <= stores[URL].objects.keys()
    channel.close()


def test_an_event_is_copied_a_few_times_however_long_others_come(stores: dict[str, MemoryStore]) -> None:
    channel, clock, merging = open_with_clock()
    clock.begin_stretch(100_000)
    for i in range(64):
        put_late(channel, 100_000 + i / 1000, random.Random(i).randbytes(40_000))
        if i % 4 == 3:
            merging.merge()
    written = [request for request in store_of(channel).requests if "-delayed." in request.key]
    assert sum(request.kind == "replace" for request in written) < 64 + 40
    assert sum(request.kind == "get" for request in written) == 0, "what this handle wrote is at hand"
    assert len(files(channel)) < 12
    channel.close()


def file(payload_bytes: int) -> DelayedFile:
    return DelayedFile(1, 0, 10, 0, 1, payload_bytes, 0)


def test_no_object_is_copied_with_others_that_are_smaller_together() -> None:
    sizes = [5_000_000, 10, 60_000, 100_000, 100_000, 200_000, 3_000_000]
    assert [f.payload_bytes for f in _of_like_size([file(size) for size in sizes])] == [10, 60_000]
    sizes = [10, 64_000, 64_000, 100_000, 200_000, 3_000_000]
    assert [f.payload_bytes for f in _of_like_size([file(size) for size in sizes])] == sizes[:-1]


@pytest.mark.parametrize("tiny_bytes", [0, 64 << 10])
@pytest.mark.parametrize(
    "copied_after",
    [(65, 130), *(pytest.param(at, marks=pytest.mark.slow) for at in ((64, 128), (69, 138), (64, 140), (130, 195)))],
)
def test_few_objects_wait_whenever_puts_are_copied(
    stores: dict[str, MemoryStore],
    monkeypatch: pytest.MonkeyPatch,
    tiny_bytes: int,
    copied_after: tuple[int, ...],
    set_limits: SetLimits,
) -> None:
    """A checkpoint copies them, and when that is created is up to the clock."""
    monkeypatch.setattr(object_delay_merging, "_TINY_BYTES", tiny_bytes)
    channel, _, merging = open_with_clock()
    set_limits(many_puts=64, many_of_a_stretch=8)
    rng = random.Random(1)
    for number in range(1, copied_after[-1] + 63):
        with channel.put_transaction() as tx:
            for _ in range(30):
                tx.put(Event(bytes(20)), deliver_after=rng.uniform(100, 86_400))
        if number in copied_after:
            merging.merge()
    assert len(files(channel)) < 120
    assert channel.stats().delayed.events == 30 * number
    channel.close()


def test_an_object_goes_along_with_what_comes_to_its_stretch_unless_it_is_much_larger(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    monkeypatch.setattr(object_delay_merging, "_TINY_BYTES", 0)
    channel, clock, merging = open_with_clock()
    set_limits(many_of_a_stretch=100)
    clock.begin_stretch(100_000)
    body, found = random.Random(1).randbytes(5_000), list[list[int]]()
    for events in (4, 4, 8, 4, 1):
        for number in range(4):
            with channel.put_transaction() as tx:
                tx.put(Event(b"soon"), deliver_after=1_000)
                tx.put_many([Event(b"%d" % number + body)] * events, deliver_after=100_000 + number)
        merging.merge()
        found.append([file.events for file in files(channel) if file.width_ms > 10_000_000])
    assert found == [[16], [32], [64], [64, 16], [64, 16, 4]]
    clock.pass_by(200_000)
    deliver_all(channel)
    assert [found[:1] for found in peek(channel)] == [b"s"] * 20 + sorted([b"%d" % i for i in range(4)] * 21)
    channel.close()


@pytest.mark.parametrize(
    ("transactions", "events"),
    [(100, 100), pytest.param(200, sized(ci=500, full=5_000), marks=pytest.mark.crash, id="very many")],
)
def test_many_events_that_wait_cost_little_state_and_no_scan(
    stores: dict[str, MemoryStore], transactions: int, events: int, set_limits: SetLimits
) -> None:
    """Each is due at a time of its own, within a day; what is due is read from few objects."""
    channel, clock, merging = open_with_clock(transaction_capacity=10_000, overflow_capacity=2_000_000)
    set_limits(many_puts=64, many_of_a_stretch=8)
    rng = random.Random(1)
    for number in range(transactions):
        with channel.put_transaction() as tx:
            for _ in range(events):
                tx.put(Event(bytes(20)), deliver_after=rng.uniform(100, 86_400))
        if number % 50 == 49:
            merging.merge()
    merging.merge()
    total = transactions * events
    assert len(pack(channel.engine().state.image())) < 30_000
    assert len(files(channel)) < 120
    channel.close()
    channel, late, _ = open_with_clock()
    late.now_ms = clock.now_ms + 600_000
    deliver_all(channel)
    assert channel.stats().channel_size == pytest.approx(total * 500 / 86_300, rel=0.2)
    read = {
        request.key for request in store_of(channel).requests if request.kind == "get" and "-delayed." in request.key
    }
    assert len(read) < 40
    assert sum(len(stores[URL].objects[key]) for key in read) < sum(
        len(stores[URL].objects[name]) for name in channel.engine().state.delays.names()
    )
    late.pass_by(90_000)
    deliver_all(channel)
    assert (channel.stats().channel_size, channel.stats().delayed.events) == (total, 0)
    channel.close()
