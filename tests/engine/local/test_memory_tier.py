"""The memory tier: where puts go, in which order takes come, who makes and removes it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import ChannelFullError, MemoryTierWarning, OptionError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import HeadState
from tests.support.damage import memory_of, offsets
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.interrupts import Interrupts
from tests.support.two_tiers import switching

Open = Callable[..., Channel]


# ── where puts go ───────────────────────────────────────────────────────────────────────────────


def wait_for_room(channel: Channel, timeout_seconds: float) -> None:
    """Let the puts of one handle wait so long, whatever the channel's option says."""
    state = channel.engine().state
    state.options = replace(state.options, overflow_timeout=timeout_seconds)


def test_a_channel_has_no_memory_tier_unless_it_is_asked_for(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"x")
    stats = channel.stats()
    assert (stats.memory.events, stats.memory.event_capacity, stats.memory.byte_capacity) == (0, 0, 0)
    assert stats.drain_order == [-1]
    assert not os.path.lexists(path / "memory")


def test_puts_go_to_memory_while_there_is_room_and_the_disk_tier_is_not_written(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 1))  # creates the tier and reserves IDs for it
    take(channel)
    before = channel.stats().counters.disk_bytes
    for i in range(20):
        put(channel, *numbered(i, 50))
        assert take(channel) == numbered(i, 50)
    assert channel.stats().counters.disk_bytes == before


def test_a_put_transaction_lands_whole_in_one_tier(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=30, overflow_timeout=0)
    for count in (10, 10, 25, 5, 40, 3):
        put(channel, *numbered(0, count))
    assert channel.stats().drain_order == [20, -25, 5, -40, 3]


def test_the_first_shortage_waits_overflow_timeout_and_the_next_do_not(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0.3)
    put(channel, *numbered(0, 10))
    put(channel, b"waits")
    assert channel.stats().overflow_active
    wait_for_room(channel, 1e9)  # whoever waited now would never come back
    put(channel, b"does not wait")
    assert channel.stats().drain_order == [10, -2]
    assert channel.stats().spilled_transactions == 2


def test_a_put_that_waits_goes_to_memory_when_a_take_makes_room(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=1e9)
    put(channel, *numbered(0, 10))
    waiting = threading.Thread(target=put, args=(channel, b"waits"))
    waiting.start()
    take(channel, 4)
    waiting.join(30)
    assert not waiting.is_alive()
    assert (channel.stats().drain_order, channel.stats().overflow_active) == ([7], False)


def test_a_put_that_waits_follows_another_that_begins_the_overflow(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=1e9)
    put(channel, *numbered(0, 10))
    waiting = threading.Thread(target=put, args=(channel, b"waits"))
    waiting.start()
    impatient = open_channel()
    wait_for_room(impatient, 0.01)
    put(impatient, b"impatient")
    waiting.join(30)
    assert not waiting.is_alive()
    assert channel.stats().drain_order == [10, -2]


def test_the_overflow_ends_when_a_take_finds_enough_memory_free(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100, overflow_timeout=0, overflow_deactivation_threshold=20)
    put(channel, *numbered(0, 100))
    put(channel, b"spilled")
    take(channel, 19)
    assert channel.stats().overflow_active
    take(channel, 1)
    assert not channel.stats().overflow_active


@pytest.mark.parametrize("deliver_after", [None, 100], ids=["at once", "late"])
def test_no_put_ends_the_overflow(open_channel: Open, deliver_after: int | None) -> None:
    channel = open_channel(memory_capacity=15, overflow_timeout=0)
    put(channel, *numbered(0, 9))
    put(channel, *numbered(9, 7))
    with channel.put_transaction() as tx:
        tx.put(Event(b"one more"), deliver_after=deliver_after)
    assert channel.stats().overflow_active, "though much of the memory is free"


def test_a_transaction_larger_than_memory_goes_to_disk_at_once_and_begins_no_overflow(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=1e9)
    put(channel, *numbered(0, 11))
    put(channel, *numbered(0, 10))
    stats = channel.stats()
    assert (stats.drain_order, stats.overflow_active, stats.spilled_transactions) == ([-11, 10], False, 1)


def test_bytes_bound_the_memory_tier_too(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=1 << 20, overflow_timeout=0)
    body = bytes(100_000)
    for _ in range(12):
        put(channel, body)
    stats = channel.stats()
    assert stats.drain_order == [8, -4]  # of 80% of 1 MiB; the rest is for all but the events
    assert stats.memory.payload_bytes <= (stats.memory.byte_capacity or 0) == (1 << 20) * 80 // 100
    assert stats.overflow_active
    take(channel, 1)
    assert not channel.stats().overflow_active
    put(channel, bytes(900_000))  # larger than all of it
    assert channel.stats().drain_order == [7, -5]


def test_the_overflow_continues_while_bytes_are_what_is_short(open_channel: Open) -> None:
    """Flume looks at the events alone."""
    channel = open_channel(
        memory_capacity=10_000, byte_capacity=1 << 20, overflow_timeout=0, overflow_deactivation_threshold=20
    )
    for _ in range(9):
        put(channel, bytes(100_000))
    take(channel, 1)
    assert channel.stats().overflow_active
    take(channel, 1)
    assert not channel.stats().overflow_active


def test_files_of_memory_are_bounded_though_takes_ahead_leave_holes(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=4 << 20, overflow_timeout=0)
    put(channel, *[bytes(100_000)] * 3)
    with channel.take_transaction() as stalled:
        stalled.take_many(1)
        for _ in range(60):
            put(channel, *[bytes(100_000)] * 5)
            assert len(take(channel, 5)) == 5
            assert sum(f.stat().st_size for f in memory_of(path).iterdir()) <= (4 << 20) + 2 * (1 << 18)
        stalled.rollback()
    assert channel.stats().spilled_transactions == 0
    assert channel.stats().memory.events == len(take(channel))


def test_a_put_that_waits_for_files_finds_those_that_another_handle_freed(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=2 << 20, overflow_timeout=0)
    while channel.stats().spilled_transactions == 0:
        put(channel, bytes(100_000))
    other = open_channel()
    take(other)
    wait_for_room(channel, 1e9)
    put(channel, bytes(100_000))
    assert channel.stats().drain_order == [1]


def test_dropping_a_group_or_moving_to_disk_ends_the_overflow_too(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0)
    peek(channel, 1, "slow")
    for end in (lambda: channel.drop_group("slow"), channel.flush):
        put(channel, *numbered(0, 10))
        put(channel, b"spilled")
        assert channel.stats().overflow_active
        take(channel) if end is not channel.flush else None
        end()
        assert not channel.stats().overflow_active


def test_a_put_waits_for_memory_and_then_for_the_disk(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=5, overflow_capacity=5, overflow_timeout=0.1, keep_alive=1e9)
    put(channel, *numbered(0, 5))
    put(channel, *numbered(5, 5))
    channel.engine().state.overflow = False
    waiting = threading.Thread(target=put, args=(channel, b"10"))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    assert take(channel) == numbered(0, 10)
    waiting.join(30)
    assert take(channel) == [b"10"]


def test_a_memory_only_channel_is_full_when_memory_is(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=0, keep_alive=0.05)
    put(channel, *numbered(0, 10))
    with pytest.raises(ChannelFullError, match=r"To continue, take events, or raise memory_capacity$"):
        put(channel, b"x")
    with pytest.raises(ChannelFullError, match="or put fewer at once"):
        put(channel, *numbered(0, 11))
    take(channel, 1)
    put(channel, b"x")
    assert channel.stats().drain_order == [10]
    assert channel.stats().spilled_transactions == 0


def test_what_a_memory_only_channel_moved_to_disk_counts(open_channel: Open) -> None:
    with open_channel(memory_capacity=10, overflow_capacity=0) as channel:
        put(channel, *numbered(0, 10))
    channel = open_channel(keep_alive=0)
    assert channel.stats().drain_order == [-10]
    with pytest.raises(ChannelFullError):
        put(channel, b"x")
    take(channel, 4)
    put(channel, *numbered(10, 4))
    assert (channel.stats().drain_order, channel.stats().channel_fill_percentage) == ([-6, 4], 100)


def test_a_channel_that_could_hold_nothing_is_refused(path: Path, open_channel: Open) -> None:
    with pytest.raises(OptionError, match="both 0"):
        open_channel(memory_capacity=0, overflow_capacity=0)
    assert not path.exists()
    open_channel(memory_capacity=5)
    with pytest.raises(OptionError, match="both 0"):
        Channel(path, memory_capacity=0, overflow_capacity=0)


def test_a_full_disk_does_not_stop_puts_that_go_to_memory(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0, minimum_required_space=1 << 60)
    put(channel, *numbered(0, 10))
    assert channel.stats().drain_order == [10]


# ── takes ───────────────────────────────────────────────────────────────────────────────────────


def test_one_take_crosses_the_tiers_in_order_and_so_does_its_rollback(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=19, overflow_timeout=0)
    bodies = switching(channel)
    assert channel.stats().drain_order == [3, -20] * 5
    assert peek(channel) == bodies
    assert peek(channel, 30) == bodies[:30]
    assert take(channel, 30) == bodies[:30]
    assert take(channel) == bodies[30:]
    assert channel.stats().drain_order == []


def test_a_rolled_back_take_returns_to_the_head_from_either_tier(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=19, overflow_timeout=0)
    bodies = switching(channel)
    with channel.take_transaction() as first, channel.take_transaction() as second:
        assert [e.body for e in first.take_many(10)] == bodies[:10]
        assert [e.body for e in second.take_many(10)] == bodies[10:20]
        first.rollback()
        second.commit()
    assert take(channel) == bodies[:10] + bodies[20:]


def test_a_rolled_back_put_holds_nothing(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0)
    for _ in range(50):
        tx = channel.put_transaction()
        tx.begin()
        tx.put_many(Event(b) for b in numbered(0, 10))
        tx.rollback()
        tx.close()
    put(channel, *numbered(0, 10))
    assert (channel.stats().drain_order, channel.stats().memory.events) == ([10], 10)


def test_every_group_takes_its_own_way_across_the_tiers(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=19, overflow_timeout=0)
    bodies = switching(channel)
    peek(channel, 1, "slow")
    assert take(channel, 10_000, "fast") == bodies
    assert channel.stats().drain_order == [3, -20] * 5  # the slow one needs them all
    assert take(channel, 50, "slow") == bodies[:50]
    assert sum(map(abs, channel.stats().drain_order)) == 65


def test_batches_too_come_from_both_tiers(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=19, overflow_timeout=0)
    bodies = switching(channel)
    with channel.take_transaction() as tx:
        table = tx.take_batch(10_000)
    assert table is not None
    assert (table["body"].to_pylist(), table["write_order_id"].to_pylist()) == (bodies, list(range(1, 116)))


def test_a_large_transaction_stays_in_memory_while_it_fits(path: Path, open_channel: Open) -> None:
    """Past `maxInlineBytes` too, and past what goes inline in memory."""
    channel = open_channel(memory_capacity=10_000, byte_capacity=200 << 20, max_inline_bytes=1000)
    channel.engine().memory.create()
    for count in (5, 100):
        bodies = pa.array([bytes([i]) * (1 << 20) for i in range(count)], pa.binary())
        headers = pa.array([[]] * count, EVENT_SCHEMA.field("headers").type)
        with channel.put_transaction() as tx:
            tx.put_batch(pa.record_batch([headers, bodies], schema=EVENT_SCHEMA))
    assert channel.stats().drain_order == [105]
    assert [len(list(d.glob("*segment*"))) for d in (path / "data", path / "memory")] == [0, 1]
    assert [b[0] for b in take(channel)] == [*range(5), *range(100)]
    assert not list((path / "memory").glob("*segment*"))


# ── room ────────────────────────────────────────────────────────────────────────────────────────


def test_capacity_changes_at_any_open_and_nothing_is_lost(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_timeout=0)
    put(channel, *numbered(0, 10))
    smaller = open_channel(memory_capacity=4)
    put(smaller, *numbered(10, 2))
    put(channel, *numbered(12, 2))
    assert channel.stats().drain_order == [10, -4]
    assert take(channel, 8) == numbered(0, 8)
    put(channel, *numbered(14, 2))
    larger = open_channel(memory_capacity=100)
    put(larger, *numbered(16, 50))
    off = open_channel(memory_capacity=0)
    put(off, b"66")
    assert off.stats().drain_order == [2, -4, 52, -1]
    assert take(channel) == numbered(8, 59)


def test_taken_memory_is_freed_and_its_files_are_used_again(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=8 << 20)
    for _ in range(100):
        put(channel, *[bytes(100_000)] * 5)
        take(channel)
    assert len(list(memory_of(path).iterdir())) <= 3
    assert sum(f.stat().st_size for f in memory_of(path).iterdir()) < 8 << 20


def test_ids_are_reserved_on_disk_before_memory_uses_them(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10)
    put(channel, b"x")
    assert channel.engine().state.memory.reserved_id > channel.stats().last_id
    assert len(offsets(path, FrameType.RESERVE)) == 1
    take(channel)
    channel.engine().state.memory.reserved_id = 1  # used up
    put(channel, b"y")
    assert len(offsets(path, FrameType.RESERVE)) == 2


def test_what_a_failed_append_left_in_memory_is_cut_though_the_disk_continued(
    open_channel: Open,
) -> None:
    fs = FaultyFileSystem()
    with open_channel(fs=fs, memory_capacity=100) as channel:
        put(channel, b"0")
        with (
            pytest.warns(MemoryTierWarning),
            fs.failing(lambda call: call.name == "write" and call.file.startswith("memory-")),
        ):
            put(channel, b"1")  # neither the append nor the zeros over it can be written: it goes to disk
        assert channel.engine().log.lock.published().memory.state == HeadState.APPENDING
        assert peek(channel) == [b"0", b"1"]
        put(channel, b"2")
        assert channel.engine().log.lock.published().is_clean()
        assert peek(channel) == [b"0", b"1", b"2"]


def test_memory_that_was_used_is_kept_until_a_checkpoint_and_within_the_capacity(
    path: Path, open_channel: Open
) -> None:
    """New pages cost more than what is written to them."""
    channel = open_channel(memory_capacity=100_000, byte_capacity=16 << 20, checkpoint_interval=1 << 50)

    def files() -> dict[str, int]:
        return {file.name: file.stat().st_size for file in memory_of(path).iterdir()}

    def spares() -> int:
        return sum(name.startswith("spare-") for name in files())

    for _ in range(3):
        for _ in range(10):
            put(channel, bytes(1 << 20))
            assert sum(files().values()) <= 17 << 20
        take(channel, 10)
    assert spares() > 5
    put(channel, b"x")
    before = len(files())
    put(channel, bytes(2 << 20))
    assert len(files()) <= before, "it used spares"
    channel.checkpoint()
    assert spares() <= 3


def test_after_an_interrupted_put_memory_needs_no_new_file(tmp_path: Path) -> None:
    """Nothing is synced there, so no interrupt leaves a file that can't be trusted; shared memory may be full."""
    number, hit = 0, True
    while hit:
        number += 1
        fs = FaultyFileSystem()
        with Channel(tmp_path / str(number), memory_capacity=100, minimum_required_space=0, fs=fs) as channel:
            put(channel, b"a")
            tx = channel.put_transaction()
            tx.begin()
            tx.put(Event(b"b"))
            interrupts = Interrupts(number, "log/wal", "log/tier_files", "log/append_failure")
            interrupts.run(tx.commit)
            hit = interrupts.hit
            with fs.failing(lambda call: call.name == "create" and call.file.startswith("memory-")):
                assert take(channel, 1) == [b"a"], f"interrupted at {number}"
                put(channel, b"c")
    assert number > 20


def test_a_tier_whose_first_file_could_not_be_created_is_not_lost(tmp_path: Path) -> None:
    """The log recorded the tier before that file, so it has to record that there is none."""
    fs, path = FaultyFileSystem(), tmp_path / "channel"
    with (
        fs.failing(lambda call: call.name == "create" and call.file.startswith("memory-")),
        pytest.warns(MemoryTierWarning, match="events go to disk until"),
        Channel(path, memory_capacity=10, minimum_required_space=0, fs=fs) as channel,
    ):
        put(channel, b"a")
        shutil.copytree(path, tmp_path / "after a crash", symlinks=True)
    with Channel(tmp_path / "after a crash") as crashed:
        assert peek(crashed) == [b"a"]
        assert (crashed.stats().lost, crashed.stats().doubtful) == ((), ())
