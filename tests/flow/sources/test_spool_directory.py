from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sources import spool_directory as spool_directory_module
from spillable_stream.flow.sources.spool_directory import SpoolDirectory, spool_directory
from tests.lab.users import NEEDS_USERS, NOBODY, common_directory, run_as


def directory(path: Path, **options: object) -> SpoolDirectory:
    given = {"suffix": ".DONE", "delete_policy": "never", "tracker_dir": ".t", "tracking_policy": "rename",
             "include": "^.*$", "ignore": "^$", "order": "oldest", "recursive": False}  # fmt: skip
    return spool_directory(path, **{**given, **options})  # type: ignore[arg-type]


def test_a_name_that_is_taken_is_never_replaced(tmp_path: Path) -> None:
    for name in ("a", "a.DONE"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        directory(tmp_path).complete(str(tmp_path / "a"))
    assert (tmp_path / "a.DONE").read_text() == "a.DONE"
    assert directory(tmp_path).set_aside(str(tmp_path / "a")) == str(tmp_path / "a.ASIDE")
    assert directory(tmp_path).choose() is None


def test_a_name_that_the_disk_cannot_look_at_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "a.DONE"):
        (tmp_path / name).write_text(name)

    def fails(*_: object, **__: object) -> os.stat_result:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "lstat", fails)
        with pytest.raises(StorageError, match=f"can't look at {tmp_path}/a.DONE .Input/output error.; check the disk"):
            directory(tmp_path).complete(str(tmp_path / "a"))
    assert (tmp_path / "a.DONE").read_text() == "a.DONE"


def test_what_is_not_a_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")  # nobody writes to it: an open would wait for ever
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "b"))
        assert directory(tmp_path).choose() is None
        assert directory(tmp_path).count() == 0
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "c").touch()
    (tmp_path / "c").symlink_to(tmp_path / "target" / "c")
    assert directory(tmp_path).choose() == str(tmp_path / "c")


@NEEDS_USERS
def test_a_file_of_another_user_who_lets_this_one_only_read_it_is_renamed() -> None:
    with common_directory() as common:
        (spool := common / "spool").mkdir()
        spool.chmod(0o777)
        (spool / "a").write_text("x")
        (spool / "a").chmod(0o644)
        assert not run_as(NOBODY, lambda: directory(spool).complete(str(spool / "a")), common / "stderr")
        assert [p.name for p in spool.iterdir()] == ["a.DONE"]


@pytest.mark.parametrize("call", [SpoolDirectory.choose, SpoolDirectory.count])
@NEEDS_USERS
def test_a_directory_that_this_user_may_not_list_is_named(call: Callable[[SpoolDirectory], object]) -> None:
    def list_it() -> None:
        with pytest.raises(StorageError, match=r"can't list .*spool \(Permission denied\); let this user read it"):
            call(directory(common / "spool"))

    with common_directory() as common:
        (common / "spool").mkdir(mode=0o700)
        assert not run_as(NOBODY, list_it, common / "stderr")


def test_files_that_are_noted_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    found = directory(tmp_path, tracking_policy="tracker_dir")
    found.check()
    assert found.choose() == str(tmp_path / "a")
    found.complete(str(tmp_path / "a"))
    assert found.choose() is None
    assert (tmp_path / "a").exists() and (tmp_path / ".t" / "a.DONE").exists()


def test_nothing_is_read_while_the_disk_cannot_look_at_where_the_last_mark_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passed for a directory that is gone, and a power cut took the mark back."""
    for name in "ab":
        (tmp_path / name).touch()
    found = directory(tmp_path)
    found.complete(str(tmp_path / "a"))

    def fails(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", fails)
        broken.setattr(os, "open", fails)
        broken.setattr(Path, "is_dir", os.path.isdir)  # as Python 3.14 has it
        with pytest.raises(StorageError, match=f"can't sync the directory {tmp_path} .Input/output error."):
            found.choose()
    assert found.choose() == str(tmp_path / "b")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_file_whose_mark_the_disk_cannot_look_at_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Since Python 3.14, `Path.exists` says no then."""
    (tmp_path / "a").touch()
    found = directory(tmp_path, tracking_policy="tracker_dir")
    found.check()
    found.complete(str(tmp_path / "a"))
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith(".DONE"):
            raise OSError(number, os.strerror(number))
        return stat(path, **options)

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", fails)
        broken.setattr(Path, "exists", os.path.exists)
        assert found.choose() is None
    assert found.unlisted == {
        f"can't look at all that is in {tmp_path} ({os.strerror(number)}); let this user enter it"
    }
    assert found.choose() is None


@pytest.mark.parametrize(
    "options, marked",
    [({}, ""), ({"delete_policy": "immediate"}, ""), ({"tracking_policy": "tracker_dir"}, ".t/")],
    ids=["rename", "remove", "tracker"],
)
def test_what_was_read_is_durably_marked_before_another_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], marked: str
) -> None:
    for name in ("below/a", "b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = directory(tmp_path, recursive=True, **options)
    found.check()
    found.complete(str(tmp_path / "below" / "a"))
    synced, refuses = list[Path](), True

    def sync(path: Path) -> None:
        if refuses:
            raise StorageError(f"can't sync {path}")
        synced.append(path)

    monkeypatch.setattr(spool_directory_module, "sync_directory", sync)
    for _ in range(2):
        with pytest.raises(StorageError, match="can't sync"):
            found.choose()
    refuses = False
    assert found.choose() == str(tmp_path / "b")
    assert tmp_path / f"{marked}below" in synced
    synced.clear()
    assert found.choose() == str(tmp_path / "b")
    assert synced == []


def test_patterns_are_javas(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "1.csv"):
        (tmp_path / name).touch()
    found = directory(tmp_path, include=r"\p{Alpha}\Q.\Ecsv", ignore="[a-z&&[^b]].*")
    assert found.choose() == str(tmp_path / "b.csv")
    found.complete(str(tmp_path / "b.csv"))
    assert found.choose() is None


@pytest.mark.parametrize("pattern", ["(", "a{,2}"])
def test_a_pattern_that_java_refuses_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(OptionError, match=f"the source for {tmp_path}"):
        directory(tmp_path, include=pattern)
