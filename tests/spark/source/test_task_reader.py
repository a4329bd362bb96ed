"""What a task reads when memory moved to disk, or events left, between its planning and its run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.local import local_plans
from spillable_stream.errors import ChannelClosedError, CorruptionError, DataLossError, UnsafeStoreError
from spillable_stream.format.file_names import Tier
from spillable_stream.log.salvage import salvage
from spillable_stream.objects.slots import slot_key
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.batch_reader import SpillableBatchReader
from spillable_stream.spark.source.read_options import BatchOptions, StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from spillable_stream.spark.source.task_reader import TaskReader
from spillable_stream.storage.filesystem import FileSystem
from tests.spark.test_channel_pool import close_parked
from tests.support.events import numbered, put, take
from tests.support.object_channels import URL, collect_now, stores_in_memory
from tests.support.store_limits import SetLimits

Planned = Callable[[], list[bytes]]

FS = FileSystem()
QUARANTINE = {"on_corruption": "quarantine"}


def flush(channel: ss.Channel) -> None:
    """Move what is in memory to disk, and have its files used again."""
    held = memory_files(channel)
    channel.flush()
    channel.checkpoint()  # begins a new file of the memory tier
    assert not any(file.exists() for file in held)


def memory_files(channel: ss.Channel) -> list[Path]:
    """Return the log files of the memory tier."""
    return sorted(channel.engine().layout.log_file(f) for f in channel.engine().layout.log_files(FS, Tier.MEMORY))


MOVES: dict[str, Callable[[ss.Channel], Any]] = {"flush": flush, "last close": ss.Channel.close}


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    """A channel with the events 1 to 5 on disk, and 6 to 45 in memory."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, *numbered(1, 5))
    with ss.Channel(tmp_path / "c", memory_capacity=100) as channel:
        for first in range(6, 46, 10):
            put(channel, *numbered(first, 10))
        assert channel.stats().drain_order == [-5, 40]
        yield channel


def batch(channel: ss.Channel, **options: Any) -> Planned:
    """Plan a batch read of everything; what is returned runs its tasks."""
    reader = SpillableBatchReader(
        str(channel.path), BatchOptions.of({"min_partitions": 3, **options}), struct_type(channel.schema)
    )
    parts = reader.partitions()
    assert len(parts) == 3
    return lambda: [body for part in parts for batch in reader.read(part) for body in batch["body"].to_pylist()]


def stream(channel: ss.Channel, **options: Any) -> Planned:
    """Plan a micro-batch of everything, and leave its worker as Spark does: it is killed."""
    schema = struct_type(channel.schema)
    reader = SpillableStreamReader(str(channel.path), StreamOptions.of({"min_partitions": 3, **options}), schema)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start))
    assert len(parts) == 3
    reader.stop()
    return lambda: [body for part in parts for batch in reader.read(part) for body in batch["body"].to_pylist()]


@pytest.fixture(params=[batch, stream])
def plan(request: pytest.FixtureRequest) -> Callable[..., Planned]:
    kind: Callable[..., Planned] = request.param
    return kind


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("options", [{}, QUARANTINE], ids=["fail", "quarantine"])
def test_events_that_moved_to_disk_after_the_planning_are_read_there_at_every_attempt(
    channel: ss.Channel, plan: Callable[..., Planned], move: str, options: dict[str, str]
) -> None:
    run = plan(channel, **options)
    MOVES[move](channel)
    assert run() == run() == numbered(1, 45)
    assert not (channel.path / "quarantine").exists()
    with ss.Channel(channel.path) as now:
        assert (now.stats().drain_order, now.stats().lost) == ([-45], ())


@pytest.mark.parametrize("first", ["flush", "put"])
def test_events_are_read_though_the_log_continued_in_another_file_after_the_planning(
    channel: ss.Channel, plan: Callable[..., Planned], first: str
) -> None:
    """They are in the file of the planning, which is complete now, or in the new one."""
    with ss.Channel(channel.path, max_file_size=1 << 20) as large:
        run = plan(channel)
        if first == "flush":
            flush(large)
        put(large, *[bytes(600_000)] * 2)
        flush(large)
        assert len(list((channel.path / "data").glob("log-*"))) == 2
    assert run() == numbered(1, 45)


def test_a_memory_tier_of_a_later_generation_is_not_taken_for_the_one_of_the_planning(
    channel: ss.Channel, plan: Callable[..., Planned]
) -> None:
    run = plan(channel)
    channel.close()
    with ss.Channel(channel.path) as later:
        put(later, *numbered(46, 10))
        assert later.stats().drain_order == [-45, 10]
        assert run() == numbered(1, 45)


@pytest.mark.usefixtures("one_block")
def test_events_that_move_while_a_task_reads_are_read_on_disk_from_where_it_was(channel: ss.Channel) -> None:
    for i in range(46, 55):  # more of them lie together than the reader brings at once
        put(channel, b"%d" % i + bytes(100_000))
    [plan] = channel.port().plan_read([[(46, 54)]])
    extent = next(e for e in plan.extents if e.last_id - e.first_id > 1)
    events = plan.open()
    reads = TaskReader(events, None, BatchOptions.of()).read(extent)
    found = [next(reads)]
    flush(channel)
    for _ in range(3):  # the file gets other contents
        put(channel, bytes(400_000))
        channel.checkpoint()
    found += reads
    events.close()
    assert [read.first_id for read in found] == [*range(extent.first_id, extent.last_id + 1)]
    assert len({read.batch["body"][0].as_py().rstrip(b"\0") for read in found}) == len(found)


@pytest.mark.parametrize("options", [{}, QUARANTINE], ids=["fail", "quarantine"])
def test_a_batch_read_misses_exactly_what_was_taken_before_memory_moved(
    channel: ss.Channel, caplog: pytest.LogCaptureFixture, options: dict[str, str]
) -> None:
    strict, lenient = batch(channel, **options), batch(channel, fail_on_data_loss=False, **options)
    assert len(take(channel, 15)) == 15
    flush(channel)
    with pytest.raises(DataLossError, match=r"the events 6 to \d+ are gone since .* Set failOnDataLoss to false"):
        strict()
    assert lenient() == [*numbered(1, 5), *numbered(16, 30)]  # the file of the first five is still there
    missed = re.findall(r"the events (\d+) to (\d+) are gone .*; the read continues without them", caplog.text)
    assert [i for first, last in missed for i in range(int(first), int(last) + 1)] == [*range(6, 16)]


def test_a_task_under_which_the_channel_was_moved_fails_and_misses_nothing_silently(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, *numbered(1, 5))
        schema = struct_type(channel.schema)
    (part,) = SpillableBatchReader(str(tmp_path / "c"), BatchOptions.of({}), schema).partitions()
    with contextlib.closing(part.plan.open()) as events:
        (tmp_path / "c").rename(tmp_path / "elsewhere")
        task = TaskReader(events, None, BatchOptions.of({"fail_on_data_loss": False}))
        with pytest.raises(ChannelClosedError, match="was moved, removed or replaced"):
            list(task.read(*part.plan.extents))


def test_a_micro_batch_keeps_its_events_though_others_left_and_memory_moved(channel: ss.Channel) -> None:
    channel.consumer("another")
    run = stream(channel)
    assert len(take(channel, 100, "another")) == 45
    flush(channel)
    assert run() == numbered(1, 45)


def flip(path: Path, body: bytes) -> None:
    """Flip a bit behind a body; twice is as before."""
    data = bytearray(path.read_bytes())
    data[data.index(body)] ^= 4
    with path.open("r+b") as file:  # in place: what is in memory may be mapped
        file.write(data)


def damaged_on_disk(channel: ss.Channel, first: int = 16) -> None:
    """Damage ten events where a flush wrote them."""
    (log,) = (channel.path / "data").glob("log-*")
    flip(log, b"".join(numbered(first, 10)))


def test_damage_in_moved_events_is_met_where_they_are_now(channel: ss.Channel, plan: Callable[..., Planned]) -> None:
    strict, lenient = plan(channel), batch(channel, **QUARANTINE)
    flush(channel)
    damaged_on_disk(channel)
    with pytest.raises(CorruptionError, match=r"a frame is damaged .*/data/log-"):
        strict()
    assert lenient() == [*numbered(1, 15), *numbered(26, 20)]


@pytest.mark.parametrize("first", [6, 16, 36])
def test_a_micro_batch_that_put_moved_events_into_quarantine_is_the_same_at_the_next_attempt(
    channel: ss.Channel, first: int
) -> None:
    run = stream(channel, **QUARANTINE)
    flush(channel)
    damaged_on_disk(channel, first)
    assert run() == run() == [*numbered(1, first - 1), *numbered(first + 10, 36 - first)]
    assert channel.stats().lost == ((first, first + 9),)


def test_events_that_left_by_their_quarantine_are_not_missed_at_the_next_attempt(tmp_path: Path) -> None:
    """As at the head of the queue: the group has nothing before them to take."""
    with ss.Channel(tmp_path / "c", memory_capacity=100, minimum_required_space=0) as channel:
        put(channel, *[bytes(30_000)] * 10)
        put(channel, *numbered(11, 30))
        run = stream(channel, **QUARANTINE)
        flush(channel)
        flip(channel.engine().layout.log_file(1), bytes(30_000))
        assert run() == run() == numbered(11, 30)
        assert channel.stats().lost == ((1, 10),)


@pytest.mark.parametrize("when", ["before", "between"])
def test_nothing_is_put_into_quarantine_whose_memory_file_goes_while_a_task_looks_past_damage(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """What the file holds by then may be anything: it is used again."""
    run = stream(channel, **QUARANTINE)
    (memory,) = memory_files(channel)
    damaged = b"".join(numbered(16, 10))
    flip(memory, damaged)

    def repaired_and_moved() -> None:
        flip(memory, damaged.replace(b"1", b"5", 1))
        flush(channel)

    def overtaken(*arguments: Any) -> Iterator[Any]:
        if when == "before":
            repaired_and_moved()
        for i, found in enumerate(salvage(*arguments)):
            if i == 0 and when == "between":
                repaired_and_moved()
            yield found

    monkeypatch.setattr(local_plans, "salvage", overtaken)
    assert run() == numbered(1, 45)
    assert not (channel.path / "quarantine").exists()
    assert channel.stats().lost == ()


@pytest.mark.parametrize("are_mine", [True, False])
def test_events_that_were_merged_meanwhile_are_returned_unless_the_bucket_was_put_back_and_they_are_others(
    set_limits: SetLimits, are_mine: bool
) -> None:
    set_limits(many_slots=4, quiet_seconds=0)
    options: dict[str, Any] = {"commit_interval": 0, "gc_delay": 0, "retention_bytes": 1 << 30}
    with stores_in_memory() as stores:
        with ss.Channel(URL, checkpoint_on_close=False, **options) as channel:
            put(channel, b"of both")
        before = dict(stores[URL].objects)
        with ss.Channel(URL, checkpoint_on_close=False, **options) as channel:
            put(channel, b"mine")
            [plan] = channel.port().plan_read([[(2, 2)]])
        if not are_mine:
            stores[URL].objects.clear()
            stores[URL].objects.update(before)
        with ss.Channel(URL, **options) as channel:
            for _ in range(6):
                put(channel, b"others'")
            collect_now(channel)
            assert slot_key(2) not in stores[URL].objects
        reads = TaskReader(plan.open(), None, BatchOptions.of()).read(plan.extents[0])
        if are_mine:
            assert [read.batch["body"].to_pylist() for read in reads] == [[b"mine"]]
        else:
            with pytest.raises(UnsafeStoreError, match="has another event 2 than the one that was to be read"):
                list(reads)
    close_parked()  # which are of these stores
