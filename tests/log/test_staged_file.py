from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream.errors import StorageError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.extent import Extent
from spillable_stream.log import staged_file
from spillable_stream.log.claim import make_directories
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.identity_file import planned_layout
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter, remove_abandoned_segments
from spillable_stream.option_types import CreationOptions
from tests.support.fake_files import FaultyFileSystem, nth

SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def layout(fs: FaultyFileSystem, tmp_path: Path) -> Layout:
    layout = planned_layout(tmp_path, CreationOptions())
    make_directories(fs, layout)
    return layout


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(range(first, first + count), pa.int64())}, SCHEMA)


def test_a_segment_is_read_at_the_ids_that_its_commit_gave(fs: FaultyFileSystem, layout: Layout) -> None:
    writer = StagedFileWriter(fs, layout, "query", 3)
    writer.write(encode_batch(numbers(0, 10)))
    writer.write(encode_batch(numbers(10, 5)))
    ref = writer.finish()
    writer.close()
    assert (ref.count, ref.end) == (15, writer.path.stat().st_size)

    reader = EventReader(fs, layout, lambda _: SCHEMA)
    found = list(reader.read(Extent(ref.name, 0, 1008, 1012, 1000, 77, 99)))
    reader.close()
    assert [(b.first_id, b.last_id, b.transaction_id, b.time_us) for b in found] == [
        (1008, 1009, 77, 99),
        (1010, 1012, 77, 99),
    ]
    assert [x for b in found for x in b.batch.column(0).to_pylist()] == [8, 9, 10, 11, 12]


def test_a_finished_segment_and_its_name_are_synced(fs: FaultyFileSystem, layout: Layout) -> None:
    writer = StagedFileWriter(fs, layout)
    writer.write(encode_batch(numbers(0, 1)))
    fs.calls.clear()
    writer.finish()
    assert [c.name for c in fs.calls] == ["sync", "sync_directory"]
    writer.discard()


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_a_segment_whose_sync_failed_can_only_be_discarded(fs: FaultyFileSystem, layout: Layout, call: str) -> None:
    writer = StagedFileWriter(fs, layout)
    writer.write(encode_batch(numbers(0, 1)))
    with fs.failing(nth(call, 1)), pytest.raises(StorageError):
        writer.finish()
    for use in (writer.finish, lambda: writer.write(encode_batch(numbers(1, 1)))):
        with pytest.raises(StorageError, match=rf"discard.*{call}"):
            use()
    writer.discard()
    assert not writer.path.exists()


def test_a_segment_that_could_not_be_moved_to_disk_can_only_be_discarded(fs: FaultyFileSystem, layout: Layout) -> None:
    layout.memory.mkdir()
    writer = StagedFileWriter(fs, layout, memory_bytes=1_000)
    writer.write(encode_batch(numbers(0, 10)))
    with fs.failing(nth("write", 1)), pytest.raises(StorageError):
        writer.write(encode_batch(numbers(10, 1_000)))
    for use in (writer.finish, lambda: writer.write(encode_batch(numbers(10, 1)))):
        with pytest.raises(StorageError, match="discard"):
            use()
    writer.discard()
    assert layout.segments(fs) == []


def left(
    fs: FaultyFileSystem, layout: Layout, live: set[str], committed: dict[str, int], ttl_seconds: float, owner: str = ""
) -> int:
    """Remove what is abandoned and return how many segments are left."""
    remove_abandoned_segments(fs, layout, live, committed, ttl_seconds, owner)
    return len(layout.segments(fs))


def test_a_local_segment_is_abandoned_when_its_writer_is_gone(fs: FaultyFileSystem, layout: Layout) -> None:
    writer = StagedFileWriter(fs, layout)
    assert left(fs, layout, set(), {}, 0) == 1
    writer.close()
    assert left(fs, layout, {writer.name}, {}, 0) == 1
    assert left(fs, layout, set(), {}, 1e9, owner="another") == 1
    assert left(fs, layout, set(), {}, 1e9) == 0


def test_a_querys_segment_is_abandoned_when_its_batch_is_over_or_its_time(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def staged() -> StagedFileWriter:
        writer = StagedFileWriter(fs, layout, "query", 3)
        writer.close()
        return writer

    writer = staged()
    assert left(fs, layout, set(), {"query": 2}, 3600) == 1
    assert left(fs, layout, {writer.name}, {"query": 3}, 3600) == 1
    assert left(fs, layout, set(), {"query": 3}, 3600) == 0
    staged()
    later = staged_file.uptime_seconds() + 4000
    monkeypatch.setattr(staged_file, "uptime_seconds", lambda: later)
    assert left(fs, layout, set(), {}, 5000) == 1
    assert left(fs, layout, set(), {}, 3600) == 0


@pytest.mark.parametrize("jump_seconds", [86_400, -86_400])
def test_a_clock_that_jumps_expires_no_staging(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch, jump_seconds: float
) -> None:
    """What a live query staged is adopted when all its tasks are done; the wall clock says nothing about that."""
    writer = StagedFileWriter(fs, layout, "query", 3)
    writer.close()
    now = time.time()
    monkeypatch.setattr(staged_file.time, "time", lambda: now + jump_seconds)
    assert left(fs, layout, set(), {}, 3600) == 1
    os.utime(writer.path, (now - jump_seconds, now - jump_seconds))
    assert left(fs, layout, set(), {}, 3600) == 1


@pytest.mark.parametrize("how", ["earlier boot", "earlier version", "nonsense", "torn header"])
def test_staging_that_no_live_query_can_have_expires_by_its_file_time(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "earlier version":
        monkeypatch.setattr(staged_file, "_age", lambda: {})
    elif how == "nonsense":
        monkeypatch.setattr(staged_file, "_age", lambda: {"boot": staged_file.boot_id().hex(), "up": "yesterday"})
    writer = StagedFileWriter(fs, layout, "query", 3)
    writer.close()
    monkeypatch.undo()
    if how == "torn header":
        os.truncate(writer.path, 60)
    elif how == "earlier boot":
        monkeypatch.setattr(staged_file, "boot_id", lambda: bytes(16))
    assert left(fs, layout, set(), {}, 3600) == 1
    old = time.time() - 4000
    os.utime(writer.path, (old, old))
    assert left(fs, layout, set(), {}, 3600) == 0


def test_a_segment_removed_before_its_writer_could_lock_it_is_made_again(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint between the making of the file and its lock: what is then written must not be lost."""
    from spillable_stream.storage.lock import FileLock

    real, times = FileLock.try_acquire, [0]

    def try_acquire(lock: FileLock, *, shared: bool = False) -> bool:
        times[0] += 1
        if times[0] == 1:  # the writer's first
            remove_abandoned_segments(fs, layout, set(), {}, 0)
        return real(lock, shared=shared)

    monkeypatch.setattr(FileLock, "try_acquire", try_acquire)
    writer = StagedFileWriter(fs, layout)
    assert times[0] == 3  # the writer's, the checkpoint's, the writer's again
    writer.write(encode_batch(numbers(0, 3)))
    assert writer.finish().end == writer.path.stat().st_size
    assert len(layout.segments(fs)) == 1
    writer.discard()


def test_a_segment_that_memory_has_no_room_for_nor_disk_leaves_nothing(fs: FaultyFileSystem, layout: Layout) -> None:
    layout.memory.mkdir()
    writer = StagedFileWriter(fs, layout, memory_bytes=1_000)
    writer.write(encode_batch(numbers(0, 10)))
    assert writer.path.parent == layout.memory
    with fs.failing(nth("write", 1)), pytest.raises(StorageError):
        writer.write(encode_batch(numbers(10, 1_000)))
    writer.discard()
    assert layout.segments(fs) == []
