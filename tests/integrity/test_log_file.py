"""A log file: what its first frame says, and what is unknown where that is damaged."""

from __future__ import annotations

from pathlib import Path

from spillable_stream.integrity.log_file import LogFile, headers_of, read_log_file
from spillable_stream.integrity.repair import repair
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import fill, three_puts
from tests.support.damage import flip, log_file

FS = FileSystem()


def read(path: Path, file_id: int) -> LogFile:
    return read_log_file(FS, read_identity(FS, path), file_id)


def test_its_header_says_which_file_was_before_it(path: Path) -> None:
    fill(path)
    files = [read(path, 2), read(path, 3)]
    header = headers_of(files)(3)
    assert header is not None and header.previous is not None and header.previous[0] == 2
    assert (files[1].path, files[1].begin > 0, files[1].end) == (log_file(path, 3), True, 0)


def test_a_damaged_header_says_nothing(path: Path) -> None:
    fill(path)
    flip(log_file(path, 3), 60)
    found = read(path, 3)
    assert (found.header, found.begin, found.holds_everything) == (None, 0, False)


def test_the_file_that_a_repair_begins_holds_everything(path: Path) -> None:
    at = three_puts(path)
    assert not read(path, 1).holds_everything
    flip(log_file(path), at[1] + 60)
    repair(path)
    assert read(path, 2).holds_everything
