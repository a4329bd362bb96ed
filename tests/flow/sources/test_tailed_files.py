from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.flow.sources.file_groups import FileGroup, Found
from spillable_stream.flow.sources.position_file import FilePosition
from spillable_stream.flow.sources.tailed_file import TailedFile
from spillable_stream.flow.sources.tailed_files import TailedFiles


def files_of(directory: Path, **options: bool) -> TailedFiles:
    given = {"skip_to_end": False, **options}
    files = TailedFiles([FileGroup("g", f"{directory}/a.*")], idle_seconds=2**40, now=lambda: 2e9, **given)
    files.begin("a1.r1", {}, only_flume=False)
    return files


def read_whole(file: TailedFile) -> None:
    chunk = file.read(file.size_bytes)
    assert chunk is not None
    file.mark = chunk.mark_after(len(chunk.data))


def one_that_rests(directory: Path) -> tuple[TailedFiles, TailedFile]:
    """Return the files of a directory: one, named a, that was read and closed."""
    (directory / "a").write_text("1\n")
    files = files_of(directory)
    (file,) = files.look()
    read_whole(file)
    file.close()
    return files, file


def names(files: TailedFiles) -> list[str]:
    return [os.path.basename(file.path) for file in files.look()]


def test_those_with_more_to_read_come_the_oldest_first(tmp_path: Path) -> None:
    for name, written in (("a1", 200), ("a2", 100), ("b", 50), ("a3", 100)):
        (tmp_path / name).write_text("x\n")
        os.utime(tmp_path / name, (written, written))
    (tmp_path / "a0").touch()
    files = files_of(tmp_path)
    assert names(files) == ["a2", "a3", "a1"]
    read_whole(files.look()[0])
    assert names(files) == ["a3", "a1"]
    files.close()


def test_a_copy_waits_until_the_original_is_truncated(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    files = files_of(tmp_path)
    (original,) = files.look()
    read_whole(original)
    shutil.copyfile(tmp_path / "a", tmp_path / "a.1")
    with (tmp_path / "a.1").open("a") as copy:
        copy.write("3\n")
    assert names(files) == []
    os.truncate(tmp_path / "a", 0)
    files.truncated(original)
    (released,) = files.look()
    assert (os.path.basename(released.path), released.mark.position) == ("a.1", 4)
    files.close()


def test_a_file_that_is_gone_is_forgotten_when_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    files = files_of(tmp_path)
    (file,) = files.look()
    file.open()
    (tmp_path / "a").unlink()
    assert [f.mark.inode for f in files.look()] == [file.mark.inode]
    read_whole(file)
    assert files.look() == [] and file.mark.inode not in files


def test_a_file_that_is_renamed_between_the_listing_and_the_look_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the log is created anew nothing has its name."""
    files, file = one_that_rests(tmp_path)
    real = FileGroup.files

    def renamed_afterwards(group: FileGroup, **how: bool) -> list[Found]:
        found = real(group, **how)
        monkeypatch.undo()
        (tmp_path / "a").rename(tmp_path / "a.1")
        return found

    monkeypatch.setattr(FileGroup, "files", renamed_afterwards)
    assert files.look() == [] and file.mark.inode in files
    assert files.look() == [] and file.mark.inode in files
    (tmp_path / "a").write_text("2\n")
    (new,) = files.look()
    assert new.path == str(tmp_path / "a") and file.path == str(tmp_path / "a.1")
    files.close()


@pytest.mark.parametrize("in_listing", [False, True])
def test_a_file_that_a_listing_misses_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_listing: bool
) -> None:
    """As it may where the file is renamed meanwhile."""
    files, file = one_that_rests(tmp_path)

    def missed(group: FileGroup, **how: bool) -> list[Found]:
        monkeypatch.undo()
        (tmp_path / "a").rename(tmp_path / "a.1")
        return []

    place = FilePosition(str(tmp_path / "a"), file.mark)
    monkeypatch.setattr(FileGroup, "files", missed)
    if in_listing:
        monkeypatch.setattr(FileGroup, "find", lambda group, inode: None)
        assert files.look() == []
    else:
        files.begin("a1.r1", {file.mark.inode: place}, only_flume=False)
    assert files.look() == [] and file.mark.inode in files
    files.close()


def test_a_closed_file_that_is_removed_is_forgotten_at_the_second_look(tmp_path: Path) -> None:
    files, file = one_that_rests(tmp_path)
    (tmp_path / "a").unlink()
    assert files.look() == [] and file.mark.inode in files
    assert files.look() == [] and file.mark.inode not in files


def test_a_file_that_cannot_be_opened_for_a_while_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = one_that_rests(tmp_path)
    with (tmp_path / "a").open("a") as f:
        f.write("2\n")
    (tmp_path / "a").rename(tmp_path / "rotated")  # no name of the group: it is looked at through a descriptor
    real = os.open

    def refused(path: str, *arguments: Any, **keywords: Any) -> int:
        if os.path.basename(path) == "rotated":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        for _ in range(3):
            files.look()
    assert [(f.path, f.mark.position) for f in files.look()] == [(str(tmp_path / "rotated"), 2)]
    files.close()


def test_files_can_begin_at_their_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    assert names(files_of(tmp_path, skip_to_end=True)) == []


def test_a_look_at_a_thousand_files_that_rest_costs_one_call_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(1000):
        (tmp_path / f"a{n}.log").write_text("line\n")
    os.utime(tmp_path, (1e9, 1e9))
    files = files_of(tmp_path, skip_to_end=True)
    assert files.look() == []
    calls: Counter[str] = Counter()

    def counted(name: str) -> None:
        inner = getattr(os, name)

        def call(*arguments: object, **keywords: object) -> object:
            calls[name] += 1
            return inner(*arguments, **keywords)

        monkeypatch.setattr(os, name, call)

    for name in ("stat", "fstat", "open", "pread", "scandir", "listdir"):
        counted(name)
    assert files.look() == []
    assert calls == {"stat": 1000 + 1}  # and one for the directory
    monkeypatch.undo()
    files.close()
