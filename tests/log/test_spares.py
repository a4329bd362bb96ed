"""Data files that were drained are used again, and nobody ever sees the bytes of one file in another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.log.frames import find_frame
from spillable_stream.log.layout import Layout
from spillable_stream.log.spares import Spares
from spillable_stream.log.wal import Position, WriteAheadLog
from spillable_stream.storage.lock import FileLock
from tests.support.fake_files import Call, FaultyFileSystem
from tests.support.logs import STATE, append, begin, contents

MIB = 1 << 20


@pytest.fixture
def spares(fs: FaultyFileSystem, layout: Layout) -> Spares:
    return Spares(fs, layout)


@pytest.fixture
def files(layout: Layout) -> list[Path]:
    """Make three data files of 100 bytes."""
    paths = [layout.log_file(i) for i in (1, 2, 3)]
    for path in paths:
        path.write_bytes(b"x" * 100)
    return paths


def names(layout: Layout) -> list[str]:
    return sorted(path.name for path in layout.log_file(1).parent.iterdir() if path.name != "owner.json")


def test_files_that_nobody_needs_become_spares_durably(
    spares: Spares, fs: FaultyFileSystem, layout: Layout, files: list[Path]
) -> None:
    fs.calls.clear()
    spares.retire(files[:2], MIB)
    assert names(layout) == ["log-000003", "spare-log-000001", "spare-log-000002"]
    assert fs.calls[-1] == Call("sync_directory", "data")


def test_the_spare_that_was_used_last_is_the_first_to_be_used_again(
    spares: Spares, layout: Layout, files: list[Path]
) -> None:
    assert spares.last(files[0].parent) is None
    spares.retire(files, MIB)
    last = spares.last(files[0].parent)
    assert last == layout.spare_file(3)
    spares.use(last, layout.log_file(4)).close()
    assert names(layout) == ["log-000004", "spare-log-000001", "spare-log-000002"]


def test_a_new_name_is_durable_before_a_byte_is_written(
    spares: Spares, fs: FaultyFileSystem, layout: Layout, files: list[Path]
) -> None:
    spares.retire(files, MIB)
    fs.calls.clear()
    spares.use(layout.spare_file(3), layout.log_file(4)).close()
    assert [c for c in fs.calls if c.name in ("rename", "sync_directory", "write")] == [
        Call("rename", "log-000004"),
        Call("sync_directory", "data"),
    ]


def test_spares_have_no_more_bytes_than_they_may(spares: Spares, layout: Layout, files: list[Path]) -> None:
    spares.retire(files, 250)
    assert names(layout) == ["spare-log-000002", "spare-log-000003"]
    spares.keep(199)
    assert names(layout) == ["spare-log-000003"]
    spares.keep(0)
    assert names(layout) == []


def test_there_are_no_more_than_a_few_spares_however_small_they_are(spares: Spares, layout: Layout) -> None:
    paths = [layout.log_file(i) for i in range(1, 31)]
    for path in paths:
        path.write_bytes(b"x")
    spares.retire(paths[:20], MIB)
    spares.retire(paths[20:], MIB)
    assert names(layout) == [layout.spare_file(i).name for i in range(23, 31)]


def test_a_file_that_somebody_reads_is_removed_and_stays_theirs(
    spares: Spares, fs: FaultyFileSystem, layout: Layout, files: list[Path]
) -> None:
    with contextlib.closing(FileLock(fs.open(files[1], readonly=True))) as reader:
        assert reader.try_acquire(shared=True)
        spares.retire(files, MIB)
        assert names(layout) == ["spare-log-000001", "spare-log-000003"]
        assert reader.file.read(0, 200) == b"x" * 100


def test_a_file_with_another_name_is_removed_and_the_other_name_keeps_its_bytes(
    spares: Spares, layout: Layout, files: list[Path], tmp_path: Path
) -> None:
    os.link(files[1], tmp_path / "backup")
    spares.retire(files, MIB)
    assert names(layout) == ["spare-log-000001", "spare-log-000003"]
    assert (tmp_path / "backup").read_bytes() == b"x" * 100


def test_a_file_that_is_gone_is_none_to_keep(spares: Spares, layout: Layout, files: list[Path]) -> None:
    files[1].unlink()
    spares.retire(files, MIB)
    assert names(layout) == ["spare-log-000001", "spare-log-000003"]


@pytest.mark.parametrize("call", ["rename", "sync_directory"])
def test_a_file_that_cannot_be_used_again_is_not_half_made(
    open_log: Callable[..., WriteAheadLog], fs: FaultyFileSystem, layout: Layout, call: str
) -> None:
    wal = open_log(1000)
    begin(wal)
    layout.spare_file(9).write_bytes(b"x" * 2000)
    with fs.failing(lambda c: c.name == call and c.file in ("log-000002", "data")), pytest.raises(StorageError):
        for _ in range(10):
            append(wal, bytes(300))
    before = contents(wal)
    append(wal, bytes(300))
    assert contents(wal) == [*before, (2, 300)]
    assert names(layout)[:2] == ["log-000001", "log-000002"]


def test_a_log_continues_in_a_spare_and_what_was_in_it_counts_no_more(
    open_log: Callable[..., WriteAheadLog], fs: FaultyFileSystem, layout: Layout, spares: Spares
) -> None:
    wal = open_log(2000)
    begin(wal)
    for _ in range(12):
        append(wal, bytes(300))
    last = wal.published().file_id
    assert last > 2
    with wal.lock.locked(1):
        spares.retire([layout.log_file(i) for i in range(1, last)], MIB)
        wal.roll(lambda: STATE)
    inode = layout.log_file(last + 1).stat().st_ino
    assert f"spare-log-{last - 1:06d}" not in names(layout)
    append(wal, b"new")
    header = wal.read_file_header(last + 1)
    assert header is not None and header.reused
    assert layout.log_file(last + 1).stat().st_ino == inode
    assert layout.log_file(last + 1).stat().st_size > 1000, "the earlier bytes are behind the end"
    end = Position(*wal.published()[:2])
    found = [(i, f.header.length) for i, f in wal.records(Position(last, 0), end) if f.header.type == FrameType.PUT]
    assert found[-1] == (last + 1, 3)
    with contextlib.closing(fs.open(layout.log_file(last + 1), readonly=True)) as file:
        seed = file_seed(layout.channel, layout.log_file(last + 1).name)
        assert [f.header.length for f in find_frame(file, seed, 0, FrameType.PUT)] == [3]
        assert next(find_frame(file, file_seed(layout.channel, f"log-{last - 1:06d}"), 0, FrameType.PUT), None)


def test_a_file_of_the_first_kind_does_not_say_that_it_is_reused(wal: WriteAheadLog) -> None:
    header = wal.read_file_header(1)
    assert header is not None and not header.reused
