"""The log files of a tier, read up to ends that were published."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import FrameType
from spillable_stream.log.layout import Layout
from spillable_stream.log.log_files import LogFiles, Position
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.storage.file import File
from tests.support.fake_files import FaultyFileSystem
from tests.support.logs import append, begin, contents


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
    with pytest.raises(DataLossError, match="between log-000001 and log-000003 are missing; restore them, or let"):
        contents(wal)


@pytest.fixture
def three_files(open_log: Callable[..., WriteAheadLog]) -> list[Position]:
    """Make a log of three files with an event each, and return their ends."""
    wal = open_log(max_file_size_bytes=600)
    begin(wal)
    ends = []
    for size in (400, 401, 402):
        append(wal, bytes(size))
        ends.append(Position(*wal.published()[:2]))
    assert [end.file_id for end in ends] == [1, 2, 3]
    return ends


@pytest.fixture
def files(fs: FaultyFileSystem, layout: Layout) -> Iterator[LogFiles]:
    files = LogFiles(fs, layout, Tier.DISK)
    yield files
    files.close()


def puts(files: LogFiles, start: Position, end: Position) -> list[tuple[int, int]]:
    return [(i, f.header.length) for i, f in files.records(start, end) if f.header.type == FrameType.PUT]


def test_a_log_is_read_from_one_published_end_to_another(files: LogFiles, three_files: list[Position]) -> None:
    first, second, third = three_files
    assert puts(files, Position(1, 0), third) == [(1, 400), (2, 401), (3, 402)]
    assert puts(files, first, second) == [(2, 401)]
    assert puts(files, third, third) == []


def test_what_lies_behind_an_end_is_not_read(files: LogFiles, layout: Layout, three_files: list[Position]) -> None:
    with layout.log_file(3).open("r+b") as file:
        file.seek(three_files[2].offset)
        file.write(b"half an append")
    assert puts(files, three_files[1], three_files[2]) == [(3, 402)]


def test_the_end_of_a_full_file_is_what_the_next_one_says(files: LogFiles, three_files: list[Position]) -> None:
    assert [files.end_of(i) for i in (1, 2)] == [end.offset for end in three_files[:2]]


def test_the_end_of_the_newest_file_is_not_known(files: LogFiles, three_files: list[Position]) -> None:
    with pytest.raises(CorruptionError, match="the data file after log-000003 is missing"):
        files.end_of(3)


def test_a_file_ends_nowhere_where_the_next_ones_header_is_damaged(
    files: LogFiles, layout: Layout, three_files: list[Position]
) -> None:
    with layout.log_file(2).open("r+b") as file:
        file.write(b"X")
    assert files.read_file_header(2) is None
    with pytest.raises(CorruptionError, match="the header of log-000002 is damaged") as caught:
        files.end_of(1)
    assert caught.value.path == str(layout.log_file(2))


def test_a_header_says_which_file_it_is_of_and_where_it_ends(files: LogFiles, three_files: list[Position]) -> None:
    header = files.read_file_header(2)
    assert header is not None
    assert (header.file_id, header.previous) == (2, (1, three_files[0].offset))
    end = files.first_frame_end(2)
    assert 0 < end < three_files[1].offset
    assert puts(files, Position(2, end), three_files[1]) == [(2, 401)]


def test_a_start_that_was_removed_is_told_from_damage(
    files: LogFiles, layout: Layout, three_files: list[Position]
) -> None:
    """Whoever reads begins again from a checkpoint then."""
    layout.log_file(1).unlink()
    with pytest.raises(FileNotFoundError):
        puts(files, Position(1, 0), three_files[0])


class Removing(FaultyFileSystem):
    """A file system from which somebody removes files before a listing."""

    def __init__(self, layout: Layout, at: int) -> None:
        super().__init__()
        self._layout = layout
        self._left = at

    def list_files(self, directory: Path) -> list[str]:
        self._left -= 1
        if self._left == 0:
            for number in (1, 2):
                self._layout.log_file(number).unlink()
        return super().list_files(directory)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_files_that_are_removed_between_two_looks_are_neither_passed_over_nor_lost(
    layout: Layout, three_files: list[Position], at: int
) -> None:
    """Whoever follows begins again from a checkpoint; it must not go from the first file to the third."""
    with contextlib.closing(LogFiles(Removing(layout, at), layout, Tier.DISK)) as files:
        try:
            assert puts(files, Position(1, 0), three_files[2]) == [(1, 400), (2, 401), (3, 402)]
        except FileNotFoundError:
            return
        assert at > 2  # all was read before


def test_files_that_are_gone_with_the_one_before_them_are_not_lost(
    files: LogFiles, layout: Layout, three_files: list[Position]
) -> None:
    records = files.records(Position(1, 0), three_files[2])
    next(records)
    for number in (1, 2):
        layout.log_file(number).unlink()
    with pytest.raises(FileNotFoundError):
        list(records)
    with pytest.raises(FileNotFoundError):
        puts(files, Position(1, 0), three_files[2])


def test_a_file_that_is_used_again_while_it_is_read_is_missing_and_not_damaged(
    wal: WriteAheadLog, files: LogFiles, layout: Layout
) -> None:
    for size in (100_000, 1):
        append(wal, bytes(size))
    end = Position(*wal.published()[:2])
    records = files.records(Position(1, 0), end)
    assert [next(records)[1].header.type for _ in range(2)] == [FrameType.FILE_HEADER, FrameType.PUT]
    with layout.log_file(1).open("r+b") as file:
        file.write(b"x" * end.offset)
    with pytest.raises(CorruptionError, match=f"its bytes up to {end.offset} were committed"):
        list(files.records(Position(1, 0), end))
    layout.log_file(1).rename(layout.path / "used again")
    with pytest.raises(FileNotFoundError):
        list(records)


def test_an_interrupt_at_the_end_of_a_close_leaves_no_closed_file_to_read_on(
    files: LogFiles, three_files: list[Position], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second, third = three_files
    assert puts(files, second, third) == [(3, 402)]
    close = File.close

    def interrupted(file: File) -> None:
        close(file)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(File, "close", interrupted)
        files.leave(4)
    assert puts(files, second, third) == [(3, 402)]


def test_a_file_that_the_log_left_is_closed(files: LogFiles, three_files: list[Position]) -> None:
    """Else its disk space is not free when it is removed."""
    puts(files, Position(1, 0), three_files[0])
    assert files._reading is not None
    handle = files._reading[1]
    files.leave(1)
    assert not handle.is_closed()
    files.leave(2)
    assert handle.is_closed()
