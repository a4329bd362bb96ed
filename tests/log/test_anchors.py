"""The note of which files the handles of a channel share."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

from spillable_stream.log.anchors import are_anchored, recovery_token, write_anchors
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import flip
from tests.support.fake_files import FaultyFileSystem

NAMES = ("open.lock", "lock", "head")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[File]]:
    files = [FileSystem().open(tmp_path / name, create=True) for name in NAMES]
    yield files
    for file in files:
        file.close()


def test_without_a_note_every_file_is_believed(files: list[File]) -> None:
    assert are_anchored(*files)


@pytest.mark.parametrize("which", [1, 2])
def test_a_file_that_was_put_in_the_place_of_another_is_not_the_one_that_was_noted(
    files: list[File], tmp_path: Path, which: int
) -> None:
    write_anchors(*files)
    assert are_anchored(*files)
    another = FileSystem().open(tmp_path / "another", create=True)
    assert not are_anchored(*(another if i == which else file for i, file in enumerate(files)))
    another.close()


def test_a_note_that_is_damaged_is_none(files: list[File], tmp_path: Path) -> None:
    write_anchors(*files)
    flip(tmp_path / "open.lock", 13)
    assert are_anchored(files[0], files[2], files[1])


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[tuple[FaultyFileSystem, list[File]]]:
    fs = FaultyFileSystem()
    files = [fs.open(tmp_path / name, create=True) for name in NAMES]
    yield fs, files
    for file in files:
        file.close()


def test_a_disk_without_room_for_the_note_is_no_error_and_nothing_is_left_of_the_note_before(
    faulty: tuple[FaultyFileSystem, list[File]],
) -> None:
    """A copy that can't note its recovery either would continue under the token of the one before."""
    fs, files = faulty
    before = write_anchors(*files)
    with fs.failing(lambda call: call.name == "store"):
        token = write_anchors(*files)
    assert len(token) == 16 and token != before, "the handle that recovers has one all the same"
    assert recovery_token(files[0]) == "" and are_anchored(*files)
    assert are_anchored(files[0], files[2], files[1]), "what is there is believed"


def test_a_recovery_that_can_neither_be_noted_nor_hide_the_one_before_has_no_token(
    faulty: tuple[FaultyFileSystem, list[File]],
) -> None:
    """Other handles read the one before: two tokens would take turns."""
    fs, files = faulty
    write_anchors(*files)
    with fs.failing(lambda call: call.name in {"store", "truncate"}):
        assert write_anchors(*files) == ""


def test_a_note_that_cannot_be_read_has_no_token(faulty: tuple[FaultyFileSystem, list[File]]) -> None:
    fs, files = faulty
    write_anchors(*files)
    with fs.failing(lambda call: call.name == "load"):
        assert recovery_token(files[0]) == ""


def test_a_note_of_version_0_1_0_tells_the_files_and_has_no_token(files: list[File]) -> None:
    write_anchors(*files)  # it writes over a longer one
    note = struct.pack("<4sQQQ", b"SPA1", *(file.identity().inode for file in files))
    files[0].store(0, note + struct.pack("<I", google_crc32c.value(note)))
    assert are_anchored(*files)
    assert not are_anchored(files[0], files[2], files[1])
    assert recovery_token(files[0]) == ""


def test_each_recovery_has_a_token_of_its_own(files: list[File]) -> None:
    assert recovery_token(files[0]) == ""
    tokens = set()
    for _ in range(3):
        tokens.add(write_anchors(*files))
        assert recovery_token(files[0]) in tokens
    assert len(tokens) == 3 and all(len(token) == 16 for token in tokens)


def test_a_note_that_is_damaged_has_no_token(files: list[File], tmp_path: Path) -> None:
    write_anchors(*files)
    flip(tmp_path / "open.lock", 30)
    assert recovery_token(files[0]) == ""
