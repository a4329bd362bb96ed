from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.log.preallocation import Preallocation
from tests.support.fake_files import FaultyFileSystem, SmallDisk

KIB, MIB = 1 << 10, 1 << 20
ANY_SIZE = 1 << 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_small_file_gets_little_and_a_large_one_as_much_again(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    for end, reserved_end in [
        (100, 100 + 64 * KIB),
        (64 * KIB, 100 + 64 * KIB),
        (65 * KIB, 130 * KIB),
        (MIB, 2 * MIB),
        (60 * MIB, 92 * MIB),
    ]:
        preallocation.reserve(file, end, ANY_SIZE)
        assert file.size() == reserved_end
    assert path.stat().st_blocks * 512 >= 92 * MIB
    assert fs.count("preallocate") == 4


def test_what_another_process_reserved_is_not_reserved_again(path: Path) -> None:
    fs = FaultyFileSystem()
    file, mine, others = fs.open(path, create=True), Preallocation(fs), Preallocation(fs)
    others.reserve(file, MIB, ANY_SIZE)
    fs.calls.clear()
    mine.reserve(file, 2 * MIB, ANY_SIZE)
    assert fs.calls == []


def test_nothing_is_reserved_beyond_the_size_of_a_file(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    preallocation.reserve(file, 1000, 5000)
    assert file.size() == 5000
    preallocation.reserve(file, 6000, 5000)  # an append that is larger than a file may be
    assert file.size() == 5000


def test_what_is_reserved_leaves_the_space_that_is_to_be_free(path: Path) -> None:
    fs = SmallDisk(path.parent, 8 * MIB)
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    preallocation.minimum_required_space = 2 * MIB
    end = 0
    while end + 10 * KIB <= 6 * MIB:
        end += 10 * KIB
        preallocation.reserve(file, end, ANY_SIZE)
        file.write(end - 10 * KIB, [bytes(10 * KIB)])
        assert fs.free_bytes(path) >= 2 * MIB - 4 * KIB  # of which a block may be the last one written
    assert fs.count("preallocate") < 40


def test_a_write_is_tried_where_nothing_can_be_reserved(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    with fs.failing(lambda call: call.name == "preallocate"):
        preallocation.reserve(file, 100, ANY_SIZE)
    assert file.size() == 0
