"""A log continues in a new file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.errors import ChannelClosedError, DiskSpaceError, StateTooLargeError, StorageError
from spillable_stream.format.file_names import Tier
from spillable_stream.log import rolling
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.layout import Layout
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.storage.file import File
from tests.support.fake_files import FaultyFileSystem, nth
from tests.support.logs import STATE, append, begin, contents
from tests.support.one_module import replace_in


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


def test_a_roll_that_could_not_create_its_file_leaves_none(
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


def test_a_roll_on_a_full_disk_takes_what_the_old_file_has_in_reserve(
    wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout
) -> None:
    append(wal, b"x")
    end = wal.published().end
    assert layout.log_file(1).stat().st_size > end
    with fs.failing(nth("write", 1, "log-000002")), wal.lock.locked(1):
        wal.roll(lambda: STATE)
    assert layout.log_file(1).stat().st_size == end
    assert layout.log_files(fs) == [1, 2]


def test_a_roll_that_finds_nothing_in_reserve_is_refused_and_the_log_stays(
    wal: WriteAheadLog, fs: FaultyFileSystem
) -> None:
    append(wal, b"x")
    before = wal.published()
    fs.calls.clear()
    for attempts in (2, 3):  # the first takes what there is, in vain
        with fs.failing(lambda call: call == ("write", "log-000002")), wal.lock.locked(1), pytest.raises(StorageError):
            wal.roll(lambda: STATE)
        assert fs.count("create", "log-000002") == attempts
    assert wal.published() == before
    append(wal, b"yy")
    assert contents(wal) == [(1, 1), (1, 2)]


def test_a_state_that_fits_no_header_lets_the_file_grow_and_is_asked_again_a_minute_later(
    open_log: Callable[..., WriteAheadLog], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = open_log(max_file_size_bytes=600)
    begin(wal)
    append(wal, bytes(400))
    asked, now, room = [0], [1000.0], [False]
    replace_in(monkeypatch, rolling, "time", monotonic=lambda: now[0])

    def image() -> dict[str, Any]:
        asked[0] += 1
        if not room[0]:
            raise StateTooLargeError("too large")
        return STATE

    def rolled() -> int:
        with wal.lock.locked(1):
            return wal.reserve(400, image).file_id

    assert [rolled(), rolled()] == [1, 1]
    assert asked == [1]
    assert caplog.text.count("log-000001 grows beyond max_file_size: too large") == 1
    now[0] += 60
    room[0] = True
    assert rolled() == 2


def test_the_number_of_a_file_is_above_that_of_any_that_is_there(wal: WriteAheadLog, layout: Layout) -> None:
    layout.log_file(7).write_bytes(b"not published")
    with wal.lock.locked(1):
        assert wal.roll(lambda: STATE).file_id == 8
    assert wal.published().file_id == 8


def test_no_file_is_created_where_the_directories_are_not(wal: WriteAheadLog, layout: Layout) -> None:
    def refused() -> None:
        raise ChannelClosedError("moved")

    wal.lock.require_directories = refused
    with wal.lock.locked(1), pytest.raises(ChannelClosedError):
        wal.roll(lambda: STATE)
    assert layout.log_files(FaultyFileSystem()) == [1]


@pytest.mark.parametrize("call", ["create", "write", "sync"])
def test_where_a_directory_refuses_a_file_the_log_continues_in_another_one(
    two_disks: WriteAheadLog, fs: FaultyFileSystem, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(two_disks, bytes(800))
    with fs.failing(lambda made: made == (call, "log-000002")):
        append(two_disks, bytes(801))
        assert f"the log continues in another directory: {call}" in caplog.text
        append(two_disks, bytes(802))
    append(two_disks, bytes(803))
    assert two_disks.layout.log_files(fs) == [1, 3, 4, 5]
    assert contents(two_disks) == [(1, 800), (3, 801), (4, 802), (5, 803)]


def test_the_log_continues_in_another_directory_only_when_nothing_can_be_left_of_a_file(
    two_disks: WriteAheadLog, fs: FaultyFileSystem
) -> None:
    append(two_disks, bytes(800))
    with fs.failing(lambda call: call in {("write", "log-000002"), ("remove", "log-000002")}):
        for _ in range(2):
            with pytest.raises(StorageError, match="log-000002"):
                append(two_disks, bytes(801))
    assert two_disks.layout.log_files(fs) == [1, 2]
    append(two_disks, bytes(802))
    assert contents(two_disks) == [(1, 800), (2, 802)]


def test_files_are_begun_where_there_is_room(
    two_disks: WriteAheadLog, fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {"d0"}
    monkeypatch.setattr(fs, "free_bytes", lambda directory: 0 if directory.name in full else 1 << 30)
    for size in range(800, 803):
        append(two_disks, bytes(size))
    full = {"d1"}
    append(two_disks, bytes(803))
    full = set()
    append(two_disks, bytes(804))
    assert contents(two_disks) == [(1, 800), (3, 801), (5, 802), (6, 803), (7, 804)]


class FullDisk(FaultyFileSystem):
    """A disk that has no room for another data file."""

    full = False

    def open(self, path: Path, **how: Any) -> File:
        if self.full and how.get("exclusive"):
            raise DiskSpaceError(f"creating {path} failed")
        return super().open(path, **how)


def test_a_log_stays_in_its_file_where_there_is_no_room_for_another(
    layout: Layout, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, fs = [1000.0], FullDisk()
    replace_in(monkeypatch, rolling, "time", monotonic=lambda: now[0], time_ns=time.time_ns)
    wal = WriteAheadLog(CommitLock(fs, layout), Tier.DISK, 1000)
    begin(wal)
    append(wal, bytes(800))
    fs.full = True
    append(wal, bytes(801))
    assert "log-000001 grows beyond max_file_size: creating" in caplog.text
    fs.full = False
    append(wal, bytes(802))
    now[0] += 1
    append(wal, bytes(803))
    assert contents(wal) == [(1, 800), (1, 801), (1, 802), (2, 803)]
    wal.close()
    wal.lock.close()
