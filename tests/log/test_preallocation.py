from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import DiskSpaceError
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
    start = 0
    for end, reserved_end in [
        (100, 100 + 64 * KIB),
        (64 * KIB, 100 + 64 * KIB),
        (65 * KIB, 130 * KIB),
        (MIB, 2 * MIB),
        (60 * MIB, 92 * MIB),
    ]:
        preallocation.reserve(file, start, end, ANY_SIZE)
        assert file.size() == reserved_end
        start = end
    assert path.stat().st_blocks * 512 >= 92 * MIB
    assert fs.count("preallocate") == 4


def test_what_another_process_reserved_is_not_reserved_again(path: Path) -> None:
    fs = FaultyFileSystem()
    file, mine, others = fs.open(path, create=True), Preallocation(fs), Preallocation(fs)
    others.reserve(file, 0, MIB, ANY_SIZE)
    fs.calls.clear()
    mine.reserve(file, MIB, 2 * MIB, ANY_SIZE)
    assert fs.calls == []


def test_nothing_is_reserved_beyond_the_size_of_a_file(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    preallocation.reserve(file, 0, 1000, 5000)
    assert file.size() == 5000
    preallocation.reserve(file, 1000, 6000, 5000)  # an append that is larger than a file may be
    assert file.size() == 5000


def test_a_reservation_leaves_the_minimum_required_space_free(path: Path) -> None:
    fs = SmallDisk(path.parent, 8 * MIB)
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    preallocation.minimum_required_space = 2 * MIB
    end = 0
    while end + 10 * KIB <= 6 * MIB:
        end += 10 * KIB
        preallocation.reserve(file, end - 10 * KIB, end, ANY_SIZE)
        file.write(end - 10 * KIB, [bytes(10 * KIB)])
        assert fs.free_bytes(path) >= 2 * MIB - 4 * KIB  # of which a block may be the last one written
    assert fs.count("preallocate") < 40


def test_a_write_is_tried_where_nothing_can_be_reserved(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    with fs.failing(lambda call: call.name == "preallocate"):
        preallocation.reserve(file, 0, 100, ANY_SIZE)
    assert file.size() == 0


def test_a_put_reserves_what_only_takes_may_use(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    preallocation.keep_for_takes(file, 1000, 16 * KIB, 2000)
    assert file.size() == 2000 + 16 * KIB, "beyond the file's limit"
    fs.calls.clear()
    preallocation.reserve(file, 0, 1000, 2000)  # the put
    preallocation.keep_for_takes(file, 2000, 16 * KIB, 2000)
    preallocation.reserve(file, 1000, 2000, 2000)  # the next one
    preallocation.reserve(file, 2000, 2000 + 16 * KIB, 2000)  # takes
    assert fs.calls == []


def test_a_put_is_refused_where_it_would_leave_takes_no_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    preallocation.keep_for_takes(file, 1000, 16 * KIB, ANY_SIZE)
    reserved_end = file.size()

    def refused(error: int) -> Callable[..., None]:
        def posix_fallocate(*_: int) -> None:
            raise OSError(error, os.strerror(error))

        return posix_fallocate

    monkeypatch.setattr(os, "posix_fallocate", refused(errno.ENOSPC))
    with pytest.raises(DiskSpaceError, match=r"No space left on device .*: what is left of log is kept for takes"):
        preallocation.keep_for_takes(file, reserved_end, 16 * KIB, ANY_SIZE)
    preallocation.keep_for_takes(file, reserved_end - 16 * KIB, 16 * KIB, ANY_SIZE)
    monkeypatch.setattr(os, "posix_fallocate", refused(errno.EIO))
    preallocation.keep_for_takes(file, reserved_end, 16 * KIB, ANY_SIZE)  # the write says what is wrong
    assert file.size() == reserved_end


def test_all_of_a_put_is_reserved_where_there_is_no_more_room_than_that(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    fallocate, asked = os.posix_fallocate, list[int]()

    def posix_fallocate(descriptor: int, offset: int, size: int) -> None:
        asked.append(size)
        if len(asked) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fallocate(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    preallocation.keep_for_takes(file, MIB, 16 * KIB, ANY_SIZE)
    assert path.stat().st_blocks * 512 >= MIB + 16 * KIB == asked[1]


def test_where_nothing_can_be_preallocated_no_put_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)

    def posix_fallocate(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    preallocation.keep_for_takes(file, 1000, 16 * KIB, ANY_SIZE)
    assert file.size() == 0


def appended(fs: FaultyFileSystem, path: Path, size: int, until: int) -> Path:
    """Append so many bytes again and again, each time after a reservation."""
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    for end in range(size, until + 1, size):
        preallocation.reserve(file, end - size, end, ANY_SIZE)
        file.write(end - size, [b"x" * size])
    file.close()
    return path


def test_space_for_small_appends_is_filled_with_zeros_a_little_at_a_time(path: Path) -> None:
    fs = FaultyFileSystem()
    appends = len(range(KIB, 5 * MIB + 1, KIB))
    size = appended(fs, path, KIB, 5 * MIB).stat().st_size
    zeros = fs.count("write") - appends
    assert zeros + 1 == fs.count("preallocate") <= 12, "of the first nobody knows what it is for"
    assert 5 * MIB < size <= 6 * MIB
    assert path.read_bytes() == b"x" * (5 * MIB) + bytes(size - 5 * MIB)


def test_space_for_large_appends_is_reserved_only(path: Path) -> None:
    fs = FaultyFileSystem()
    appended(fs, path, 100 * KIB, 20 * MIB)
    assert fs.count("write") - len(range(100 * KIB, 20 * MIB + 1, 100 * KIB)) == 0
    assert path.stat().st_size >= 24 * MIB


def test_appends_that_get_small_or_large_are_noticed(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    written, end = list[bool](), 0
    for size in [100 * KIB] * 40 + [KIB] * 20_000 + [100 * KIB] * 400:
        fs.calls.clear()
        end += size
        preallocation.reserve(file, end - size, end, ANY_SIZE)
        if fs.count("preallocate"):
            written.append(fs.count("write") > 0)
    assert not written[0] and not written[1] and True in written and not written[-1]


def test_zeros_that_find_no_room_are_not_error(path: Path) -> None:
    fs = FaultyFileSystem()
    file, preallocation = fs.open(path, create=True), Preallocation(fs)
    preallocation.reserve(file, 0, 100, ANY_SIZE)
    with fs.failing(lambda call: call.name == "write"):
        for end in range(KIB, 80 * KIB, KIB):
            preallocation.reserve(file, end - KIB, end, ANY_SIZE)
    assert file.size() > 128 * KIB


def test_zeros_are_written_behind_the_append_only_however_large_it_is(path: Path) -> None:
    fs, size = FaultyFileSystem(), KIB
    appended(fs, path, size, MIB)
    file, preallocation = fs.open(path), Preallocation(fs)
    for _ in range(5_000):
        preallocation.reserve(file, 0, size, ANY_SIZE)  # which are small
    before, written = file.size(), list[int]()
    file.write = lambda offset, buffers: written.append(offset) or sum(map(len, buffers))  # type: ignore[method-assign, assignment]
    preallocation.reserve(file, MIB, 30 * MIB, ANY_SIZE)
    assert before < 30 * MIB == written[0]


def test_zeros_never_hide_what_another_process_wrote(path: Path) -> None:
    fs = FaultyFileSystem()
    handles = [(fs.open(path, create=True), Preallocation(fs)) for _ in range(2)]
    end = 0
    for turn in range(3_000):
        file, preallocation = handles[turn % 7 % 2]
        preallocation.reserve(file, end, end + KIB, ANY_SIZE)
        file.write(end, [b"x" * KIB])
        end += KIB
    assert path.read_bytes().rstrip(b"\0") == b"x" * end
    assert path.stat().st_size > end
