"""A log of the disk tier, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream.format.file_names import Tier
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.layout import Layout
from spillable_stream.log.wal import WriteAheadLog
from tests.support.fake_files import FaultyFileSystem
from tests.support.logs import begin, identified


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def layout(fs: FaultyFileSystem, tmp_path: Path) -> Layout:
    return identified(fs, tmp_path / "channel")


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


@pytest.fixture
def two_disks(fs: FaultyFileSystem, tmp_path: Path) -> Iterator[WriteAheadLog]:
    """A log in two directories, whose first file is in the second one."""
    layout = identified(fs, tmp_path / "two", data_dirs=[str(tmp_path / "d0"), str(tmp_path / "d1")])
    wal = WriteAheadLog(CommitLock(fs, layout), Tier.DISK, 1000)
    begin(wal)
    yield wal
    wal.close()
    wal.lock.close()
