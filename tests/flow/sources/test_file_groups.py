from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources.file_groups import FileGroup, file_groups


def names(group: FileGroup, *, again: bool = False) -> list[str]:
    return sorted(os.path.basename(f.path) for f in group.files(again=again))


def test_files_match_by_their_whole_name_in_one_directory(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "b.txt"):
        (tmp_path / name).touch()
    (tmp_path / "d.log").mkdir()
    group = FileGroup("g", f"{tmp_path}/.*[.]log")
    assert names(group) == ["a.log"]
    assert group.files()[0].inode == (tmp_path / "a.log").stat().st_ino
    assert group.find((tmp_path / "b.txt").stat().st_ino) == str(tmp_path / "b.txt")
    assert group.find(0) is None


def test_a_file_that_is_renamed_while_the_directory_is_listed_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    real = os.scandir

    @contextmanager
    def scandir(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(path) as entries:
            listed = sorted(entries, key=lambda e: e.name)
        (tmp_path / "b").rename(tmp_path / "d")
        yield iter(listed)

    monkeypatch.setattr(os, "scandir", scandir)
    assert names(FileGroup("g", f"{tmp_path}/.*")) == ["a", "c"]


def test_a_relative_directory_gives_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").touch()
    assert [f.path for f in FileGroup("g", "logs/.*").files()] == [f"{tmp_path}/logs/a.log"]


@pytest.mark.parametrize(
    "pattern", [r"\p{Alpha}+\.log", r"[a-z&&[^x]]+\.log", r"\Qa.\Elog", "(?<n>a)[.]log", r"a\.log$"]
)
def test_patterns_are_javas(tmp_path: Path, pattern: str) -> None:
    for name in ("a.log", "xx.log", "a.log\n", "1.log"):
        (tmp_path / name).touch()
    found = names(FileGroup("g", f"{tmp_path}/{pattern}"))
    assert "a.log" in found and "1.log" not in found and "a.log\n" not in found


def test_a_file_that_comes_in_the_tick_of_the_last_change_is_found(tmp_path: Path) -> None:
    now_ns = time.time_ns() + 10**9
    group = FileGroup("g", f"{tmp_path}/.*")
    for name in "ab":
        (tmp_path / name).touch()
        os.utime(tmp_path, ns=(now_ns, now_ns))
        assert name in names(group)


def test_a_directory_is_listed_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listings = 0
    real = os.scandir

    def scandir(path: str) -> object:
        nonlocal listings
        listings += 1
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    cached, other = FileGroup("g", f"{tmp_path}/.*"), FileGroup("g", f"{tmp_path}/.*", cached=False)
    os.utime(tmp_path, ns=(0, 0))
    for _ in range(3):
        cached.files()
    assert listings == 1
    (tmp_path / "new").touch()
    os.utime(tmp_path, ns=(1, 1))
    assert names(cached) == ["new"]
    assert names(cached, again=True) == ["new"]
    assert listings == 3
    for _ in range(3):
        other.files()
    assert listings == 6


def test_a_missing_directory_has_no_files_until_it_is_there(tmp_path: Path) -> None:
    group = FileGroup("g", f"{tmp_path}/later/.*")
    assert names(group) == []
    assert group.find(1) is None
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "x").touch()
    assert names(group) == ["x"]


def test_what_cannot_be_listed_has_no_files_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "later").touch()
    group = FileGroup("g", f"{tmp_path}/later/.*")
    assert names(group) == []
    assert group.unlisted == (
        f"can't list {tmp_path}/later (Not a directory); correct the file group, or let this user read it"
    )
    (tmp_path / "later").unlink()
    assert names(group) == [] and group.unlisted == ""
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "x").touch()
    (tmp_path / "later" / "loop").symlink_to("loop")
    assert names(group) == ["x"]
    assert group.unlisted.startswith(f"can't look at {tmp_path}/later/loop (Too many levels of symbolic links)")


def test_a_group_that_no_file_can_be_of_is_refused() -> None:
    with pytest.raises(OptionError, match=r"the file group 'g' can't be '/a\\x00b/\.\*': no file can have this name"):
        file_groups({"g": "/a\0b/.*"}, cached=True)


@pytest.mark.parametrize("path", ["no-slash", "/dir/", "/dir/("])
def test_a_wrong_group_is_refused(path: str) -> None:
    with pytest.raises(OptionError):
        FileGroup("g", path)
    with pytest.raises(OptionError, match="filegroups"):
        file_groups({}, cached=True)
