from __future__ import annotations

import errno
from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.storage.filesystem import File, FileSystem
from spillable_stream.storage.mapped import MappedFiles
from tests.fakes import FaultyFileSystem, nth


@pytest.fixture
def file(tmp_path: Path) -> File:
    return FileSystem().open(tmp_path / "a", create=True)


def test_what_is_written_is_in_the_file(file: File) -> None:
    mapped = MappedFiles()
    mapped.write(file, 5, 6, [b"abc", b"def"], 100)
    mapped.write(file, 11, 2, [b"gh"], 100)
    assert (file.size(), file.read(0, 14)) == (100, bytes(5) + b"abcdefgh" + b"\0")


def test_a_write_beyond_the_whole_makes_the_file_larger(file: File) -> None:
    mapped = MappedFiles()
    mapped.write(file, 0, 2, [b"ab"], 10)
    mapped.write(file, 8, 4, [b"cdef"], 10)
    assert file.read(0, 20) == b"ab" + bytes(6) + b"cdef"


def test_a_file_that_is_used_again_under_another_name_keeps_its_mapping(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    mapped = MappedFiles()
    mapped.write(fs.open(tmp_path / "a", create=True), 0, 2, [b"ab"], 4096)
    fs.rename(tmp_path / "a", tmp_path / "b")
    mapped.write(fs.open(tmp_path / "b"), 2, 2, [b"cd"], 4096)
    assert (tmp_path / "b").read_bytes()[:4] == b"abcd"
    assert fs.count("preallocate") == 1


def test_a_new_file_in_the_place_of_an_old_one_is_not_taken_for_it(tmp_path: Path) -> None:
    fs, mapped = FileSystem(), MappedFiles()
    for i in range(10):
        path = tmp_path / "a"
        fs.remove(path)
        mapped.write(fs.open(path, create=True), 0, 1, [b"%d" % i], 4096)
        assert path.read_bytes()[:1] == b"%d" % i


def test_a_full_file_system_is_an_error(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with fs.failing(nth("preallocate", 1)), pytest.raises(StorageError):
        MappedFiles().write(fs.open(tmp_path / "a", create=True), 0, 2, [b"ab"], 4096)


def test_where_nothing_can_be_reserved_it_is_written(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr("os.posix_fallocate", unsupported)
    MappedFiles().write(file, 3, 2, [b"ab"], 4096)
    assert file.read(0, 10) == bytes(3) + b"ab"
