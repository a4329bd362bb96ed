"""``onCorruption``: a read that fails at damage, or goes on without what is damaged."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.engine_port import EnginePort
from spillable_stream.engine.local.local_plans import LocalPlanReader
from spillable_stream.engine.port import ReadPlan
from spillable_stream.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    LockTimeoutError,
    LockUnsupportedError,
    NotAChannelError,
    OtherHostError,
    StorageError,
    UnsafeStoreError,
)
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.integrity.verify import verify
from spillable_stream.log.frames import walk
from spillable_stream.log.layout import Layout
from spillable_stream.log.salvage import Unreadable
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import StoreError
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.batch_reader import SpillableBatchReader
from spillable_stream.spark.source.on_corruption import pass_over
from spillable_stream.spark.source.read_options import BatchOptions, StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from spillable_stream.spark.source.task_reader import TaskReader
from spillable_stream.storage.filesystem import FileSystem
from tests.spark.test_channel_pool import close_parked
from tests.support.events import numbered, put
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory
from tests.support.store_limits import SetLimits

QUARANTINE = {"on_corruption": "quarantine"}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A channel of four transactions of five events, of which the second, 6 to 10, can't be read."""
    fs = FileSystem()
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        channel.consumer("another")
        for first in range(1, 21, 5):
            with channel.put_transaction() as tx:
                tx.put_many(ss.Event(b"%d" % i) for i in range(first, first + 5))
        layout: Layout = channel.engine().layout
    file = fs.open(layout.log_file(1), readonly=True)
    frames = walk(file, file_seed(layout.channel, seed_name(1)), 0, file.size())
    puts = [f.offset for f in frames if f.header and f.header.type == FrameType.PUT]
    file.close()
    data = bytearray(layout.log_file(1).read_bytes())
    data[puts[1] + 70] ^= 4
    layout.log_file(1).write_bytes(data)
    return tmp_path / "c"


def stream(path: Path, **options: Any) -> SpillableStreamReader:
    with ss.Channel(path) as channel:
        schema = struct_type(channel.schema)
    return SpillableStreamReader(str(path), StreamOptions.of(options), schema)


def run(reader: Any, *offsets: Any) -> list[int]:
    """Return the events of all partitions of a batch, by the numbers in their bodies."""
    parts = reader.partitions(*offsets)
    return [int(b.as_py()) for part in parts for batch in reader.read(part) for b in batch["body"]]


def batch_of(reader: SpillableStreamReader) -> tuple[Any, Any]:
    start = reader.initialOffset()
    return start, reader.latestOffset(start)


EVERYTHING_READABLE = [*range(1, 6), *range(11, 21)]


def test_read_fails_at_damage_by_default(path: Path) -> None:
    reader = stream(path)
    with pytest.raises(CorruptionError, match=r"a frame is damaged .*log-000001, offset"):
        run(reader, *batch_of(reader))


def test_stream_continues_without_the_damaged_events(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = stream(path, **QUARANTINE)
    assert run(reader, *batch_of(reader)) == EVERYTHING_READABLE
    assert "the read continues without the damaged events" in caplog.text


def test_damaged_events_are_reported_lost_and_their_bytes_kept(path: Path) -> None:
    reader = stream(path, **QUARANTINE)
    run(reader, *batch_of(reader))
    with ss.Channel(path) as channel:
        assert channel.stats().lost == ((6, 10),)
        with channel.take_transaction("another") as tx:
            assert [int(e.body) for e in tx.take_many(100)] == EVERYTHING_READABLE
    (kept,) = (path / "quarantine").iterdir()
    report = json.loads((kept / "report.json").read_text())
    assert kept.name == "events-6-10" and report["events"] == [6, 10]
    damaged = (path / "data" / "log-000001").read_bytes()[report["offset"] :][: report["size"]]
    assert (kept / f"log-000001-{report['offset']}").read_bytes() == damaged


def test_batch_that_is_replayed_is_the_same(path: Path) -> None:
    reader = stream(path, **QUARANTINE)
    start, end = batch_of(reader)
    assert run(reader, start, end) == EVERYTHING_READABLE
    reader.stop()
    again = stream(path, **QUARANTINE)
    assert again.latestOffset(start)["writeOrderId"] == end["writeOrderId"]
    assert run(again, start, end) == EVERYTHING_READABLE
    again.commit(end)
    assert again.latestOffset(end) == end


def test_other_streams_fail_at_the_loss_unless_they_quarantine_too(path: Path) -> None:
    reader = stream(path, **QUARANTINE)
    run(reader, *batch_of(reader))
    other = stream(path, group="another")
    with pytest.raises(CorruptionError, match="the events 6 to 10 are lost"):
        run(other, *batch_of(other))
    other.stop()
    third = stream(path, group="another", **QUARANTINE)
    assert run(third, *batch_of(third)) == EVERYTHING_READABLE


def test_batch_read_continues_too_and_changes_nothing(path: Path) -> None:
    with ss.Channel(path) as channel:
        schema = struct_type(channel.schema)
    assert run(SpillableBatchReader(str(path), BatchOptions.of(QUARANTINE), schema)) == EVERYTHING_READABLE
    assert not (path / "quarantine").exists()
    with ss.Channel(path) as channel:
        assert channel.stats().lost == ()
    with pytest.raises(CorruptionError):
        run(SpillableBatchReader(str(path), BatchOptions.of(), schema))


def test_channel_is_as_sound_as_before(path: Path) -> None:
    before = [f.text for f in verify(path).findings]
    reader = stream(path, **QUARANTINE)
    start, end = batch_of(reader)
    run(reader, start, end)
    reader.commit(end)
    reader.stop()
    with ss.Channel(path) as channel:
        with channel.take_transaction("another") as tx:
            tx.take_many(100)
        assert channel.engine().follow().stored() == 0
    assert len([f for f in verify(path).findings if f.severity == "damage"]) <= len(before)


def test_another_channel_at_the_path_is_told_about_no_loss(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ss.Channel(path) as channel:
        [plan] = channel.port().plan_read([[(1, 20)]])
    events = plan.open()
    shutil.rmtree(path)
    with ss.Channel(path, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_many(ss.Event(b"%d" % i) for i in range(20))
    (log,) = (path / "data").glob("log-*")
    assert pass_over(events, 1, Unreadable(6, 10, log, 0, 10), records=True) == []
    events.close()
    with ss.Channel(path) as channel:
        assert channel.stats().lost == ()
    assert "there is another channel" in caplog.text


def because(error: StorageError, cause: BaseException) -> StorageError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("step", [(LocalPlanReader, "keep_damaged"), (EnginePort, "report_lost")])
@pytest.mark.parametrize(
    "error",
    [
        StoreError("503"),
        LockTimeoutError("another process holds it"),
        CommitOutcomeUnknownError("the sync failed"),
        UnsafeStoreError("slots are gone"),
        because(StorageError("the disk is full"), OSError(errno.ENOSPC, "full")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_task_fails_where_the_loss_can_not_be_recorded_just_now(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str], error: Exception
) -> None:
    """Spark repeats it; if it passed the events, nothing would ever say that they are lost."""
    reader = stream(path, **QUARANTINE)
    start, end = batch_of(reader)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*step, fail)
        with pytest.raises(type(error)):
            run(reader, start, end)
    assert run(reader, start, end) == EVERYTHING_READABLE
    with ss.Channel(path) as channel:
        assert channel.stats().lost == ((6, 10),)
    assert (path / "quarantine" / "events-6-10" / "report.json").exists()


@pytest.mark.parametrize(
    "error",
    [
        StoreError("403", may_have_happened=False, is_lasting=True),
        because(StorageError("nothing was committed"), StoreError("403", is_lasting=True)),
        because(StorageError("no right"), OSError(errno.EACCES, "no")),
        FileNotFoundError("every group took them"),
        OtherHostError("the memory tier is elsewhere"),
        NotAChannelError("it was removed"),
        LockUnsupportedError("a file system of a network"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_task_continues_where_its_host_can_never_record_a_loss(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    reader = stream(path, **QUARANTINE)
    offsets = batch_of(reader)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(LocalPlanReader, "keep_damaged", fail)
    assert run(reader, *offsets) == EVERYTHING_READABLE
    assert f"the events 6 to 10 are passed over, and not put into quarantine: {error}" in caplog.text


# ── in a store: slots whose numbers, and events whose IDs, are others' by now ───────────────


@pytest.fixture
def memory() -> Iterator[MemoryStore]:
    with stores_in_memory() as stores:
        ss.Channel(URL).close()
        yield stores[URL]
    close_parked()  # which are of these stores


def read_as_task(plan: ReadPlan, group: str | None = "g") -> list[bytes]:
    """Return what a task that quarantines reads of a plan."""
    events = plan.open()
    reader = TaskReader(events, group, StreamOptions.of(QUARANTINE))
    reads = (read for extent in plan.extents for read in reader.read(extent))
    found = [body for read in reads for body in read.batch["body"].to_pylist()]
    events.close()
    return found


@pytest.mark.parametrize("others", [2, 12], ids=["not yet", "elsewhere"])
def test_nothing_is_returned_or_reported_lost_where_the_log_has_other_events_elsewhere_or_not_yet(
    memory: MemoryStore, others: int
) -> None:
    """The bucket was put back, so that the slot has other events, and the planned IDs are, or will be, others'."""
    with ss.Channel(URL, commit_interval=0) as channel:
        channel.consumer("g").close()
        put(channel, *numbered(1, 5))
    with memory.put_back(), ss.Channel(URL, commit_interval=0) as channel:
        put(channel, *numbered(6, 10))
        [plan] = channel.port().plan_read([[(8, 15)]])
    with ss.Channel(URL, commit_interval=0) as channel:
        for i in range(others):
            put(channel, b"another %d" % i)
    with pytest.raises(UnsafeStoreError, match="has other events 8 to 15 than those that were to be read"):
        read_as_task(plan)
    assert not [key for key in memory.objects if key.startswith("quarantine/")]
    with ss.Channel(URL, commit_interval=0) as channel:
        assert channel.stats().lost == ()


@pytest.mark.parametrize("group", ["g", None])
def test_events_of_a_damaged_slot_that_were_merged_before_are_read_from_where_they_are(
    memory: MemoryStore, set_limits: SetLimits, group: str | None
) -> None:
    set_limits(many_slots=4, quiet_seconds=0)
    with ss.Channel(URL, commit_interval=0) as channel:
        channel.consumer("g").close()
        for i in range(6):
            put(channel, *numbered(2 * i, 2))
        [plan] = channel.port().plan_read([[(1, 12)]])
        channel.checkpoint()
        assert {type(block.file) for block in channel.engine().follow().blocks} == {str}
    (extent, *_) = plan.extents
    data = bytearray(memory.objects[slot_key(extent.file)])
    data[extent.offset + 70] ^= 1
    memory.objects[slot_key(extent.file)] = bytes(data)
    assert read_as_task(plan, group) == numbered(0, 12)
    with ss.Channel(URL, commit_interval=0) as channel:
        assert channel.stats().lost == ()
