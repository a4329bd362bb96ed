from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from spillable_stream.flow.sources.file_groups import FileGroup
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
