from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.errors import (
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    DataLossError,
    LockTimeoutError,
    StorageError,
)
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import Frame, FrameType, total_size
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.identity import planned_layout, write_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.owning import make_directories
from spillable_stream.log.wal import Entry, Position, WriteAheadLog
from spillable_stream.option_types import CreationOptions
from spillable_stream.storage.lock import FileLock
from tests.support.fake_files import FaultyFileSystem, nth

STATE: dict[str, Any] = {"state": "small"}


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def layout(fs: FaultyFileSystem, tmp_path: Path) -> Layout:
    layout = planned_layout(tmp_path / "channel", CreationOptions())
    make_directories(fs, layout)
    write_identity(fs, layout)
    return layout


@pytest.fixture
def open_log(fs: FaultyFileSystem, layout: Layout) -> Iterator[Callable[..., WriteAheadLog]]:
    opened = []

    def open_log(max_file_size_bytes: int = 1 << 20) -> WriteAheadLog:
        wal = WriteAheadLog(CommitLock(fs, layout), Tier.DISK, max_file_size_bytes)
        opened.append(wal)
        return wal

    yield open_log
    for wal in opened:
        wal.close()
        wal.lock.close()


@pytest.fixture
def wal(open_log: Callable[..., WriteAheadLog]) -> WriteAheadLog:
    wal = open_log()
    begin(wal)
    return wal


def begin(wal: WriteAheadLog) -> None:
    """Begin the log as a creation does."""
    wal.lock.publish(CommitPoint(NO_TIER))
    wal.create_first_file(lambda: STATE, 1)


def append(wal: WriteAheadLog, payload: bytes) -> Position:
    """Append one PUT frame as a committer does and return where it is."""
    frame = Frame.of(FrameType.PUT, payload, 1)
    with wal.lock.locked(1):
        wal.heal(lambda: STATE)
        at = wal.reserve(total_size([frame]), lambda: STATE)
        wal.append(at, [Entry(frame.header(1, 2, 3), frame.payload)], 2, lambda: STATE)
        return at


def contents(wal: WriteAheadLog) -> list[tuple[int, int]]:
    """Return file number and payload size of every published PUT."""
    head = wal.published()
    first = wal.layout.log_files(FaultyFileSystem())[0]
    records = wal.records(Position(first, 0), Position(head.file_id, head.end))
    return [(i, f.header.length) for i, f in records if f.header.type == FrameType.PUT]


def test_what_is_appended_is_published_to_other_processes(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog]
) -> None:
    other = open_log()
    for size in (10, 0, 100_000):
        append(wal, bytes(size))
        assert contents(other)[-1] == (1, size)
    append(other, bytes(7))
    assert contents(wal) == [(1, 10), (1, 0), (1, 100_000), (1, 7)]


def test_an_append_is_synced_before_it_is_published(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    before = wal.published()
    with fs.failing(lambda call: call.name == "sync"), pytest.raises(StorageError):
        append(wal, b"x")
    assert (wal.published().file_id, wal.published().end) == (before.file_id, before.end)


def test_a_full_file_rolls_to_the_next(open_log: Callable[..., WriteAheadLog], layout: Layout) -> None:
    wal = open_log(max_file_size_bytes=1000)
    begin(wal)
    for _ in range(4):
        append(wal, bytes(400))
    append(wal, bytes(5000))  # larger than a file may be: it has a file of its own
    append(wal, bytes(1))
    assert [i for i, _ in contents(wal)] == [1, 2, 3, 4, 5, 6]
    assert layout.log_file(1).stat().st_size < 1000  # what was preallocated is given back


def test_a_new_file_names_the_trusted_end_of_the_last(open_log: Callable[..., WriteAheadLog]) -> None:
    wal = open_log(max_file_size_bytes=600)
    begin(wal)
    append(wal, bytes(400))
    end = wal.published().end
    append(wal, bytes(400))
    header = wal.read_file_header(2)
    assert header is not None
    assert header.previous == (1, end)
    assert header.state == STATE


def test_the_new_file_and_its_name_are_synced_before_the_head_points_there(
    open_log: Callable[..., WriteAheadLog], fs: FaultyFileSystem
) -> None:
    wal = open_log(max_file_size_bytes=600)
    begin(wal)
    append(wal, bytes(400))
    for call in ("create", "write", "sync", "sync_directory"):
        file = "data" if call == "sync_directory" else "log-000002"
        with fs.failing(nth(call, 1, file)), pytest.raises(StorageError):
            append(wal, bytes(400))
        assert wal.published().file_id == 1
    append(wal, bytes(400))
    assert contents(wal) == [(1, 400), (2, 400)]


def test_a_write_that_fails_is_taken_back(wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout) -> None:
    append(wal, b"kept")
    end = wal.published().end
    with fs.failing(nth("write", 1)), pytest.raises(StorageError, match="made to fail"):
        append(wal, bytes(10_000))
    assert layout.log_file(1).stat().st_size == end
    append(wal, b"next one")
    assert contents(wal) == [(1, 4), (1, 8)]


@pytest.mark.parametrize("also", ["truncate", "sync"])
def test_a_write_that_can_not_be_taken_back_is_cut_by_the_next_commit(
    wal: WriteAheadLog, fs: FaultyFileSystem, open_log: Callable[..., WriteAheadLog], also: str
) -> None:
    append(wal, b"kept")
    with fs.failing(lambda call: call.name in ("write", also)), pytest.raises(StorageError):
        append(wal, bytes(10_000))
    assert wal.published().state != HeadState.CLEAN
    append(open_log(), b"next one")
    assert [size for _, size in contents(wal)] == [4, 8]


def test_after_a_failed_sync_the_log_goes_on_in_a_new_file(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    append(wal, b"kept")
    end = wal.published().end
    with fs.failing(nth("sync", 1)), pytest.raises(StorageError, match="not committed; the log continues"):
        append(wal, b"lost")
    append(wal, b"next one")
    assert contents(wal) == [(1, 4), (2, 8)]
    header = wal.read_file_header(2)
    assert header is not None and header.previous == (1, end)


def test_a_failed_sync_that_can_not_be_settled_closes_the_log(
    wal: WriteAheadLog, fs: FaultyFileSystem, open_log: Callable[..., WriteAheadLog]
) -> None:
    append(wal, b"kept")
    with fs.failing(lambda call: call.name == "sync"), pytest.raises(CommitOutcomeUnknownError, match="opened again"):
        append(wal, b"lost")
    with pytest.raises(ChannelClosedError, match="must be opened again"):
        append(wal, b"refused")
    assert wal.published().state == HeadState.SYNC_FAILED
    append(open_log(), b"next one")
    assert contents(wal) == [(1, 4), (2, 8)]  # a file whose sync failed is never appended to again


@pytest.mark.parametrize("said", ["by a mark", "by the end's state"])
def test_what_a_dead_holder_left_is_cut_by_the_next_commit(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog], layout: Layout, said: str
) -> None:
    append(wal, b"kept")
    head = wal.published()
    with wal.lock.locked(1):
        if said == "by a mark":
            wal.lock.head.mark()
        else:
            wal.publish(head._replace(state=HeadState.APPENDING))
    with layout.log_file(1).open("r+b") as file:
        file.seek(head.end)
        file.write(b"half a frame of a process that was killed")
    append(open_log(), b"next one")
    assert contents(wal) == [(1, 4), (1, 8)]
    assert b"killed" not in layout.log_file(1).read_bytes()


def test_a_file_that_a_dead_holder_did_not_publish_is_removed(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog], layout: Layout
) -> None:
    append(wal, b"kept")
    with wal.lock.locked(1):
        wal.publish(wal.published()._replace(state=HeadState.APPENDING))
    layout.log_file(2).write_bytes(b"half a header")
    append(open_log(), b"next one")
    assert contents(wal) == [(1, 4), (1, 8)]
    assert not layout.log_file(2).exists()


def test_a_held_lock_times_out_and_names_the_holder(wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout) -> None:
    append(wal, b"x")
    other = FileLock.open(fs, layout.lock)
    assert other.try_acquire()
    with pytest.raises(LockTimeoutError, match=rf"pid {os.getpid()} on .* more than 0\.01 s"), wal.lock.locked(0.01):
        pass
    other.close()
    append(wal, b"y")


def test_a_damaged_frame_between_published_ones_names_file_and_offset(wal: WriteAheadLog, layout: Layout) -> None:
    append(wal, b"first")
    at = append(wal, b"second")
    append(wal, b"third")
    with layout.log_file(1).open("r+b") as file:
        file.seek(at.offset)
        file.write(b"X")
    with pytest.raises(CorruptionError) as caught:
        contents(wal)
    assert (caught.value.path, caught.value.offset) == (str(layout.log_file(1)), at.offset)
    assert f"offset {at.offset}]" in str(caught.value)


def test_a_missing_file_in_the_middle_is_data_loss(open_log: Callable[..., WriteAheadLog], layout: Layout) -> None:
    wal = open_log(max_file_size_bytes=600)
    begin(wal)
    for _ in range(3):
        append(wal, bytes(400))
    layout.log_file(2).unlink()
    with pytest.raises(DataLossError, match="between log-000001 and log-000003 are missing"):
        contents(wal)


def test_many_small_frames_are_joined_into_few_writes(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    frames = [Frame.of(FrameType.PUT, b"%d" % i, 1) for i in range(500)]
    entries = [Entry(frame.header(i, i), frame.payload) for i, frame in enumerate(frames)]
    fs.calls.clear()
    with wal.lock.locked(1):
        at = wal.reserve(total_size(frames), lambda: STATE)
        wal.append(at, entries, 500, lambda: STATE)
    assert (fs.count("write"), fs.count("sync")) == (1, 1)
    assert len(contents(wal)) == 500


def test_a_removed_file_is_removed_for_good_before_the_log_goes_on(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog], layout: Layout, fs: FaultyFileSystem
) -> None:
    """Else a power cut brings it back, and its header ends the file before it too early."""
    append(wal, b"kept")
    with wal.lock.locked(1):
        wal.publish(wal.published()._replace(state=HeadState.APPENDING))
    layout.log_file(2).write_bytes(b"not published")
    fs.calls.clear()
    append(open_log(), b"next one")
    names = [c.name for c in fs.calls if c.name in ("remove", "sync_directory", "write")]
    assert names == ["remove", "sync_directory", "write"]


def test_a_roll_that_could_not_make_its_file_leaves_none(
    wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without a header would break the chain of those before and after it."""
    append(wal, b"x")
    make = FaultyFileSystem.open

    def made_and_failed(self: FaultyFileSystem, path: Path, **how: Any) -> Any:
        file = make(self, path, **how)
        if how.get("exclusive"):
            raise StorageError(f"looking at {path} failed")
        return file

    with monkeypatch.context() as patch, wal.lock.locked(1), pytest.raises(StorageError, match="looking at"):
        patch.setattr(FaultyFileSystem, "open", made_and_failed)
        wal.roll(lambda: STATE)
    assert layout.log_files(fs) == [1]
    with wal.lock.locked(1):
        wal.roll(lambda: STATE)
    assert layout.log_files(fs) == [1, 2] and len(contents(wal)) == 1
