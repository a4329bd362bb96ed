"""The newest file of a log: open, in its place, and this channel's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream.errors import ChannelClosedError, DataLossError
from spillable_stream.format.file_names import Tier
from spillable_stream.log.layout import Layout
from spillable_stream.log.log_files import LogFiles
from spillable_stream.log.preallocation import Preallocation
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.log.written_file import WrittenFile
from tests.support.fake_files import FaultyFileSystem
from tests.support.logs import append


@pytest.fixture
def written(wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout) -> WrittenFile:
    """The file of a log with one event."""
    append(wal, b"first")
    return WrittenFile(fs, layout, LogFiles(fs, layout, Tier.DISK), Preallocation(fs), lambda: None)


def test_the_file_is_opened_once(written: WrittenFile, fs: FaultyFileSystem) -> None:
    fs.calls.clear()
    assert written.open(1) is written.open(1)
    assert fs.count("open") == 1
    written.close()


def test_a_file_that_is_missing_is_data_loss(written: WrittenFile, layout: Layout) -> None:
    layout.log_file(1).unlink()
    with pytest.raises(DataLossError, match=r"log-000001, the newest data file, is missing; close every handle") as e:
        written.open(1)
    assert e.value.path == str(layout.log_file(1))


def remove(layout: Layout) -> None:
    layout.log_file(1).unlink()


def replace(layout: Layout) -> None:
    data = layout.log_file(1).read_bytes()
    layout.log_file(1).rename(layout.path / "old")
    layout.log_file(1).write_bytes(data)


@pytest.mark.parametrize("harm", [remove, replace])
def test_nothing_is_written_to_a_file_that_was_removed_or_replaced(
    written: WrittenFile, layout: Layout, harm: Callable[[Layout], None]
) -> None:
    """It would be acknowledged, and nobody would find it."""
    file = written.open(1)
    harm(layout)
    with pytest.raises(DataLossError, match="was removed or replaced"):
        written.open(1)
    assert file.is_closed()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_that_went_with_its_directory_is_not_data_loss(
    fs: FaultyFileSystem, wal: WriteAheadLog, layout: Layout, is_open: bool
) -> None:
    def refused() -> None:
        raise ChannelClosedError("the directory was unmounted")

    written = WrittenFile(fs, layout, LogFiles(fs, layout, Tier.DISK), Preallocation(fs), refused)
    if is_open:
        written.open(1)
    layout.log_file(1).unlink()
    with pytest.raises(ChannelClosedError, match="the directory was unmounted"):
        written.open(1)


def test_a_file_of_something_else_is_not_written_to(written: WrittenFile, wal: WriteAheadLog, layout: Layout) -> None:
    size = layout.log_file(1).stat().st_size
    layout.log_file(1).write_bytes(b"x" * size)
    with pytest.raises(DataLossError, match="was replaced: it does not begin with its header"):
        written.require_whole(written.open(1), wal.published())


def test_a_file_that_was_cut_below_the_published_end_is_not_written_to(
    written: WrittenFile, wal: WriteAheadLog, layout: Layout
) -> None:
    end = wal.published().end
    with layout.log_file(1).open("r+b") as file:
        file.truncate(end - 1)
    with pytest.raises(DataLossError, match=f"was cut to {end - 1:,} bytes, and held {end:,}"):
        written.require_whole(written.open(1), wal.published())


def test_a_whole_file_is_proven_once(written: WrittenFile, wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    file = written.open(1)
    written.require_whole(file, wal.published())
    fs.calls.clear()
    written.require_whole(file, wal.published())
    assert fs.calls == []
    written.close()
    written.require_whole(written.open(1), wal.published())
    assert fs.count("read") > 0, "another file may be there since"
    written.close()


def test_a_file_that_was_just_made_needs_no_proof(
    written: WrittenFile, wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout
) -> None:
    file = fs.open(layout.log_file(1))
    fs.calls.clear()
    written.use(1, file, wal.published().end)
    assert written.open(1) is file
    written.require_whole(file, wal.published())
    assert fs.calls == []
    written.close()


def test_a_file_that_the_log_left_is_closed(written: WrittenFile) -> None:
    file = written.open(1)
    written.leave(1)
    assert not file.is_closed()
    written.leave(2)
    assert file.is_closed()
