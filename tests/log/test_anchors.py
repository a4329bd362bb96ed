"""The note of which files the handles of a channel share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


def test_a_disk_without_room_for_the_note_is_no_error(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    files = [fs.open(tmp_path / name, create=True) for name in NAMES]
    with fs.failing(lambda call: call.name == "store"):
        write_anchors(*files)
    assert are_anchored(*files)
    for file in files:
        file.close()


def test_each_recovery_has_a_token_of_its_own(files: list[File]) -> None:
    assert recovery_token(files[0]) == ""
    tokens = set()
    for _ in range(3):
        write_anchors(*files)
        tokens.add(recovery_token(files[0]))
        assert recovery_token(files[0]) in tokens
    assert len(tokens) == 3 and all(len(token) == 16 for token in tokens)


def test_a_note_that_is_damaged_has_no_token(files: list[File], tmp_path: Path) -> None:
    write_anchors(*files)
    flip(tmp_path / "open.lock", 30)
    assert recovery_token(files[0]) == ""
