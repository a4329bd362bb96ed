from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.log.frames import FrameScanner, find_frame
from spillable_stream.storage.file import File
from tests.support.fake_files import FaultyFileSystem

SEED = file_seed("channel", "file")
SIZES = [10, 0, 5000, 100_000, 3]


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def file(tmp_path: Path, fs: FaultyFileSystem) -> Iterator[File]:
    """A PUT of each of SIZES with a COMMIT after each, and zeros at the end."""
    file = fs.open(tmp_path / "f", create=True)
    at = 0
    for i, size in enumerate(SIZES):
        for frame in (Frame.of(FrameType.PUT, bytes([i]) * size, 1), Frame.of(FrameType.COMMIT, b"%d" % i)):
            at += file.write(at, encode(frame, SEED, i))
    file.truncate(at + 4096)
    yield file
    file.close()


def test_every_frame_is_found_and_zeros_end_the_scan(file: File) -> None:
    scanner = FrameScanner(file, SEED, 0)
    found = list(scanner)
    assert [f.header.length for f in found[::2]] == SIZES
    assert [f.payload for f in found[1::2]] == [b"%d" % i for i in range(len(SIZES))]
    assert scanner.offset == found[-1].end == file.size() - 4096


def test_put_payloads_are_not_read(file: File, fs: FaultyFileSystem) -> None:
    fs.read_bytes = 0
    assert len(list(FrameScanner(file, SEED, 0))) == 2 * len(SIZES)
    assert fs.read_bytes < 70_000 < file.size()


def test_a_scan_stops_at_its_end(file: File) -> None:
    third = list(FrameScanner(file, SEED, 0))[2]
    scanner = FrameScanner(file, SEED, 0, third.offset)
    assert len(list(scanner)) == 2
    assert scanner.offset == third.offset


def test_a_scan_may_begin_at_any_frame(file: File) -> None:
    every = list(FrameScanner(file, SEED, 0))
    assert list(FrameScanner(file, SEED, every[5].offset)) == every[5:]


def test_a_scan_stops_at_the_first_damage(file: File) -> None:
    every = list(FrameScanner(file, SEED, 0))
    file.write(every[3].offset + 48, [b"X"])
    scanner = FrameScanner(file, SEED, 0)
    assert list(scanner) == every[:3]
    assert scanner.offset == every[3].offset


def test_damaged_events_are_noticed_only_where_they_are_verified(file: File) -> None:
    every = list(FrameScanner(file, SEED, 0))
    file.write(every[6].offset + 60_000, [b"X"])
    assert len(list(FrameScanner(file, SEED, 0))) == len(every)
    assert list(FrameScanner(file, SEED, 0, verify_from=0)) == every[:6]
    assert len(list(FrameScanner(file, SEED, 0, verify_from=every[7].offset))) == len(every)


def test_frames_behind_damage_are_found_by_their_type(file: File) -> None:
    every = list(FrameScanner(file, SEED, 0))
    file.write(every[2].offset, [bytes(40)])
    found = list(find_frame(file, SEED, every[2].offset, FrameType.COMMIT))
    assert [f.offset for f in found] == [f.offset for f in every[3::2]]
    assert list(find_frame(file, SEED, every[-1].offset + 8, FrameType.COMMIT)) == []


def test_a_frame_across_the_search_step_is_found(tmp_path: Path, fs: FaultyFileSystem) -> None:
    file = fs.open(tmp_path / "g", create=True)
    for at in range((1 << 20) - 96, (1 << 20) + 8, 8):
        file.truncate(0)
        file.write(at, encode(Frame.of(FrameType.COMMIT, b"payload"), SEED))
        assert [f.offset for f in find_frame(file, SEED, 0, FrameType.COMMIT)] == [at]
    file.close()
