from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.flow.durable_file import replace_file
from spillable_stream.flow.sources.position_file import FilePosition, PositionFile, SavedPositions
from spillable_stream.flow.sources.tailed_file import Mark

FIRST = SavedPositions({7: FilePosition("/a", Mark(7, 10, 5, 1, 5, 2))}, 3)
SECOND = SavedPositions({7: FilePosition("/b", Mark(7, 20, 5, 1, 5, 3)), 8: FilePosition("/a", Mark(8, 1))}, 4)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = PositionFile(tmp_path / "below" / "p.json")
    assert file.read() == SavedPositions({})
    for positions in (FIRST, SECOND):
        file.write(positions)
        assert PositionFile(file.path).read() == positions
    assert json.loads(file.path.read_text()) == [
        {"inode": 7, "pos": 20, "file": "/b"},
        {"inode": 8, "pos": 1, "file": "/a"},
    ]


def test_a_crash_between_the_two_files_leaves_the_newer_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = PositionFile(tmp_path / "p.json")
    file.write(FIRST)

    def dies(path: Path, data: bytes) -> None:
        if path.name == "p.json":
            raise KeyboardInterrupt
        replace_file(path, data)

    monkeypatch.setattr("spillable_stream.flow.sources.position_file.replace_file", dies)
    with pytest.raises(KeyboardInterrupt):
        PositionFile(file.path).write(SECOND)
    assert file.read() == SECOND


def added_to(path: Path) -> PositionFile:
    file = PositionFile(path)
    file.write(FIRST)
    assert file.add(SECOND.files.values(), 4) and file.add([FilePosition("/c", Mark(9, 5))], 5)
    return file


BOTH = SavedPositions({**SECOND.files, 9: FilePosition("/c", Mark(9, 5))}, 5)


def test_what_was_added_is_read_and_flumes_file_gets_it_with_the_next_write(tmp_path: Path) -> None:
    file = added_to(tmp_path / "p.json")
    assert PositionFile(file.path).read() == BOTH and file.has_added
    assert json.loads(file.path.read_text()) == [{"inode": 7, "pos": 10, "file": "/a"}]
    file.write(BOTH)
    assert PositionFile(file.path).read() == BOTH and not file.has_added
    assert len(json.loads(file.path.read_text())) == 3


def test_of_what_was_added_the_whole_lines_before_a_torn_one_count(tmp_path: Path) -> None:
    file = added_to(tmp_path / "p.json")
    data = file.marks.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    for size in range(ends[0], len(data)):
        file.marks.write_bytes(data[:size])
        assert PositionFile(file.path).read() == (SECOND if size >= ends[1] - 1 else FIRST) or size == len(data) - 1
        file.marks.write_bytes(data[:size] + bytes(len(data) - size))  # the file system had made it longer
        assert PositionFile(file.path).read().number < 5 or size == len(data) - 1


def test_a_damaged_line_before_a_whole_one_is_refused_by_name(tmp_path: Path) -> None:
    file = added_to(tmp_path / "p.json")
    first, second, third, _ = file.marks.read_bytes().split(b"\n")
    file.marks.write_bytes(b"\n".join([first, second.replace(b"/b", b"/x"), third, b""]))
    with pytest.raises(CorruptionError, match=r"line 2 is not what was written.*p\.json\.marks"):
        PositionFile(file.path).read()


def test_nothing_is_added_to_a_file_that_was_not_just_written_here_or_has_grown_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = added_to(tmp_path / "p.json")
    assert not PositionFile(file.path).add([], 6)
    monkeypatch.setattr("spillable_stream.flow.sources.position_file._MOST_ADDED_BYTES", 100)
    file.write(FIRST)
    assert file.add([], 6) and file.add([], 7) and not file.add(SECOND.files.values(), 8)
    file.marks.rename(tmp_path / "old")
    assert not file.add([], 8)
    file.write(FIRST)
    file.close()
    assert not file.add([], 8)


def test_nothing_is_added_after_a_sync_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = added_to(tmp_path / "p.json")

    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", refuse)
        with pytest.raises(StorageError, match=r"can't write .*p\.json\.marks \(Input/output error\)"):
            file.add([], 6)
    assert not file.add([], 6)
    file.write(FIRST)
    assert file.add([], 6)


def test_flumes_file_counts_where_flume_has_written_it(tmp_path: Path) -> None:
    file = PositionFile(tmp_path / "p.json")
    file.write(FIRST)
    file.path.write_text('[{"inode": 7, "pos": 12, "file": "/a"}]')
    assert file.read() == SavedPositions({7: FilePosition("/a", Mark(7, 12))}, only_flume=True)
    file.path.unlink()
    assert file.read() == FIRST


def test_a_file_of_another_source_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    own, other, unnamed = (PositionFile(tmp_path / "p.json") for _ in range(3))
    own.source, other.source = "a1.r1", "a1.r2"
    unnamed.write(FIRST)  # as earlier versions did
    own.write(FIRST)
    for call in (other.read, lambda: other.write(SECOND)):
        with pytest.raises(
            StorageError,
            match=r"p\.json is the position file of a1\.r1: give a1\.r2 a positionFile of its own\. If it is the same "
            r'source under a new name, replace the name in the entry "source" of .*p\.json\.marks',
        ):
            call()
    assert own.read() == FIRST
    own.marks.write_text(own.marks.read_text().replace('"source": "a1.r1"', '"source": "a1.r2"'))  # as it says
    assert other.read() == FIRST
    own.marks.unlink()
    assert other.read().only_flume


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}[", '[{"inode": 1}]', "[1]", '[{"inode": "x", "pos": 1, "file": "f"}]', "[" * 200_000],
    ids=lambda text: text[:20],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(CorruptionError, match=r"p\.json"):
        PositionFile(tmp_path / "p.json").read()
    (tmp_path / "p.json.marks").write_text(text)
    with pytest.raises(CorruptionError, match=r"p\.json\.marks"):
        PositionFile(tmp_path / "p.json").read()
