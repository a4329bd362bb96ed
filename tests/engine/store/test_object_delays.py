"""Delayed events of a put in a store: in few objects, which the put's slot names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spillable_stream import Channel, ChannelFullError, Event, StorageError
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.engine.store import object_delays
from spillable_stream.engine.store.object_delays import StagedDelayObjects, write_delayed
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.format.dues import dues_frame
from spillable_stream.format.frame import Frame, FrameType
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.staged_object import birth_of
from spillable_stream.state.channel_state import Trimmed
from tests.support.delays import clock_of, deliver_all, deliveries_of, put_late
from tests.support.events import peek, put, take
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory
from tests.support.object_logs import new_state
from tests.support.store_limits import SetLimits


@pytest.fixture
def stores() -> Iterator[dict[str, MemoryStore]]:
    with stores_in_memory() as stores:
        yield stores


def chunk(stretch: int, first_ms: int, size_bytes: int = 8) -> DelayedChunk:
    put = Frame.of(FrameType.PUT, bytes(size_bytes), 1)
    return DelayedChunk(stretch, 10, first_ms, (dues_frame([first_ms]), put))


def written(*groups: list[DelayedChunk]) -> StagedDelayObjects:
    return write_delayed(DelayedObjects(MemoryStore("s3://b/c"), "uuid", ObjectCache(1 << 20)), 7, groups)


def test_all_that_a_put_delays_is_in_one_object() -> None:
    found = written([chunk(0, 5), chunk(100, 105), chunk(20, 25)])
    (run,) = found.runs
    assert (run.begin_ms, run.width_ms, run.start, run.count, run.payload_bytes, run.first_ms) == (5, 0, 0, 3, 24, 5)
    assert birth_of(run.name) == 7
    assert found.use() == (3, 24)


def test_an_object_of_one_stretch_of_time_says_so() -> None:
    (run,) = written([chunk(20, 25), chunk(20, 22)]).runs
    assert (run.begin_ms, run.width_ms, run.first_ms) == (20, 10, 22)


def test_an_object_that_is_full_is_followed_by_another_with_what_is_due_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_delays, "FULL_BYTES", 1000)
    runs = written([chunk(10 * n, 10 * n + 5, 600) for n in (4, 1, 2, 0, 3)], [chunk(10, 12)]).runs
    assert [(run.count, run.first_ms) for run in runs] == [(2, 5), (2, 25), (1, 45), (1, 12)]


def test_events_of_a_put_that_are_due_at_once_keep_their_order(stores: dict[str, MemoryStore]) -> None:
    with Channel(URL, commit_interval=0) as channel:
        clock = clock_of(channel)
        with channel.put_transaction() as tx:
            for number, ttl in enumerate([None, 9, None, 9, None]):  # each change begins a frame
                tx.put(Event(b"%d" % number), deliver_after=1000, ttl=ttl)
                tx.put(Event(b"before %d" % number), deliver_after=999 - number, ttl=ttl)
        clock.pass_by(2000)
        deliver_all(channel)
        assert peek(channel)[-5:] == [b"0", b"1", b"2", b"3", b"4"]


def test_objects_get_the_next_numbers_of_the_append() -> None:
    state = new_state()
    state.delays.apply([DelayedRun(4, 0, 0, 0, 50, 1, 8, 9, "segments/x")], [])
    plan = AppendPlan(state)
    first, second = written([chunk(0, 5)], [chunk(50, 55)]), written([chunk(0, 5)])
    assert [run.file for run in first.place(plan)] == [5, 6]
    assert [run.file for run in second.place(plan)] == [7]
    assert plan.is_extended
    assert len(first.place(plan)) * 100 < first.commit_bytes()


def test_a_request_that_fails_gives_its_numbers_back() -> None:
    plan, mine = AppendPlan(new_state()), written([chunk(0, 5)])

    def failing(plan: AppendPlan) -> None:
        mine.place(plan)
        raise StorageError("no")

    with pytest.raises(StorageError):
        plan.attempt(failing)  # type: ignore[arg-type]
    assert [run.file for run in mine.place(plan)] == [1]


def test_an_object_that_a_collector_may_have_removed_is_not_named(stores: dict[str, MemoryStore]) -> None:
    with Channel(URL, commit_interval=0) as channel:
        clock_of(channel)
        tx = channel.put_transaction()
        tx.begin()
        tx.put(Event(b"a"), deliver_after=10)
        assert tx._delayed is not None
        tx._waiting(tx._delayed)
        channel.engine().follow().trimmed = Trimmed(-1, 1, -1)
        with pytest.raises(StorageError, match=r"is older than staging_ttl.*nothing was committed"):
            tx.commit()
        tx.rollback()
        assert channel.stats().delayed.events == 0


def test_a_handle_that_was_idle_for_long_delays_and_stages_what_may_be_named(
    stores: dict[str, MemoryStore], set_limits: SetLimits
) -> None:
    with Channel(URL, commit_interval=0, gc_delay=3600, staging_ttl=0) as channel, Channel(URL) as idle:
        clock_of(channel, idle)
        set_limits(worth_a_trim=1)
        for i in range(4):
            put(channel, b"%d" % i)
            take(channel, 10)
            channel.checkpoint()
        assert channel.engine().state.trimmed.births > idle.engine().positions.disk.file_id
        idle.engine().log._presence.saw(float("-inf"))  # type: ignore[attr-defined]  # long ago
        with idle.put_transaction() as tx:
            tx.put(Event(b"a"), deliver_after=10)
            tx.put(Event(bytes(2 << 20)))
        assert channel.stats().delayed.events == 1


def test_a_put_that_is_tried_again_is_not_written_again(stores: dict[str, MemoryStore]) -> None:
    with Channel(URL, commit_interval=0, overflow_capacity=2, keep_alive=0) as channel:
        clock = clock_of(channel)
        channel.consumer("default")
        put(channel, b"a", b"b")
        tx = channel.put_transaction()
        tx.begin()
        tx.put(Event(b"c"), deliver_after=10)
        for _ in range(2):
            with pytest.raises(ChannelFullError):
                tx.commit()
        assert sum("-delayed." in key for key in stores[URL].objects) == 1
        assert take(channel) == [b"a", b"b"]
        tx.put(Event(b"d"), deliver_after=20)
        tx.commit()
        clock.pass_by(30)
        deliver_all(channel)
        assert peek(channel) == [b"c", b"d"]


def test_what_nobody_ever_named_is_removed(stores: dict[str, MemoryStore], set_limits: SetLimits) -> None:
    """As a put leaves it whose process was killed before its slot; what waits stays, however old it is."""
    with Channel(URL, commit_interval=0, gc_delay=0, staging_ttl=0) as channel:
        clock_of(channel)
        deliveries_of(channel).delay([chunk(0, 5)])
        put_late(channel, 10_000, b"waits")
        set_limits(worth_a_trim=1)
        for i in range(6):
            put(channel, b"%d" % i)
            take(channel, 10)
            channel.checkpoint()
        (left,) = [key for key in stores[URL].objects if "-delayed." in key]
        assert {left} == channel.engine().state.delays.names()
