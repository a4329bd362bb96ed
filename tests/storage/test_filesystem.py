from __future__ import annotations

import errno
import os
import stat
import sys
from itertools import count
from pathlib import Path
from unittest import mock

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.storage.filesystem import FileSystem
from tests.support.fake_files import FaultyFileSystem, nth
from tests.support.interrupts import Interrupts

FS = FileSystem()


def test_an_error_names_the_call_and_the_path(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    file = FS.open(tmp_path / "f", readonly=True)
    with pytest.raises(StorageError, match=rf"writing {tmp_path}/f failed: Bad file descriptor \(errno 9\)"):
        file.write(0, [b"x"])
    file.close()


def test_a_missing_file_is_not_made_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FS.open(tmp_path / "f")
    FS.open(tmp_path / "f", create=True).close()
    with pytest.raises(StorageError, match="File exists"):
        FS.open(tmp_path / "f", create=True, exclusive=True)


def test_directories_are_private_and_synced_into_their_parents(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fs.make_directory(tmp_path / "a" / "b" / "c")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert [c.file for c in fs.calls] == [tmp_path.name, "a", "b"]


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, what in (("file", "file"), ("link", "link that leads nowhere")):
        for directory in (tmp_path / name, tmp_path / name / "a" / "b"):
            with pytest.raises(StorageError, match=f"failed: {tmp_path / name} is a {what}"):
                FS.make_directory(directory)


def test_every_directory_above_is_synced_as_far_as_that_is_possible(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    fs.sync_parents(tmp_path / "link" / "b")
    assert [c.file for c in fs.calls][:2] == ["a", tmp_path.name]
    with pytest.raises(StorageError, match="missing"):
        fs.sync_parents(tmp_path / "missing" / "b")
    for number in (errno.EACCES, errno.EINVAL, errno.EROFS):  # of others, or of a kind that can't be synced
        with mock.patch("os.fsync", side_effect=OSError(number, "no")):
            fs.sync_parents(tmp_path / "a" / "b")
    with mock.patch("os.fsync", side_effect=OSError(errno.EIO, "no")), pytest.raises(StorageError):
        fs.sync_parents(tmp_path / "a" / "b")


def test_directories_above_that_were_synced_are_not_synced_again(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    fs.sync_parents(tmp_path / "a" / "b" / "c", done=tmp_path / "link")
    assert [c.file for c in fs.calls] == ["b", "a"]
    fs.calls.clear()
    fs.sync_parents(tmp_path / "a" / "b", done=tmp_path / "elsewhere")
    assert [c.file for c in fs.calls][:2] == ["a", tmp_path.name]


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename"])
def test_an_atomic_write_that_fails_leaves_the_old_file(tmp_path: Path, call: str) -> None:
    fs = FaultyFileSystem()
    fs.write_atomically(tmp_path / "f", b"old")
    with fs.failing(nth(call, 1)), pytest.raises(StorageError):
        fs.write_atomically(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"
    fs.write_atomically(tmp_path / "f", b"newer")
    assert fs.list(tmp_path) == ["f"]
    assert fs.read_file(tmp_path / "f") == b"newer"


def test_an_atomic_write_syncs_before_it_renames_and_the_directory_after(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fs.write_atomically(tmp_path / "f", b"data")
    assert [c.name for c in fs.calls if c.name != "remove"] == ["create", "write", "sync", "rename", "sync_directory"]


def test_what_is_missing_lists_as_nothing_and_is_removed_already(tmp_path: Path) -> None:
    assert FS.list(tmp_path / "none") == FS.list_directories(tmp_path / "none") == []
    FS.remove(tmp_path / "none")


def test_neither_a_file_nor_a_link_is_listed_as_a_directory(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert FS.list_directories(tmp_path) == ["a", "b"]
    with pytest.raises(StorageError, match=f"listing {tmp_path}/file failed"):
        FS.list_directories(tmp_path / "file")


@pytest.mark.parametrize("call", ["create", "read", "write", "sync", "rename", "sync_directory"])
def test_a_copy_that_failed_anywhere_leaves_nothing_that_could_pass_for_one(tmp_path: Path, call: str) -> None:
    fs = FaultyFileSystem()
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 10_000)
    with fs.failing(nth(call, 1)), pytest.raises(StorageError):
        fs.copy_durably(source, target)
    assert os.listdir(tmp_path) == ["source"]
    assert fs.copy_durably(source, target) == 10_000
    assert target.read_bytes() == source.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


def test_a_copy_has_its_name_when_it_is_synced_and_not_before(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    (tmp_path / "source").write_bytes(b"x" * 10)
    (tmp_path / "target.tmp").write_bytes(b"of a copy that was killed, and longer")
    fs.copy_durably(tmp_path / "source", tmp_path / "target")
    assert [(c.name, c.file) for c in fs.calls if c.name not in ("open", "read", "remove")] == [
        ("create", "target.tmp"), ("write", "target.tmp"), ("sync", "target.tmp"), ("rename", "target"),
        ("sync_directory", tmp_path.name),
    ]  # fmt: skip
    assert (tmp_path / "target").read_bytes() == b"x" * 10


# ── forks ───────────────────────────────────────────────────────────────────────────────────────


def test_a_path_at_which_nothing_can_be_is_told_from_one_that_is_missing(tmp_path: Path) -> None:
    fs = FileSystem()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "file").write_bytes(b"")
    for path, why in (
        (tmp_path / "circle", "its symbolic links lead in a circle"),
        (tmp_path / ("n" * 300), "too long for the file system"),
        (tmp_path / "file" / "x", "is a file and not a directory"),
    ):
        assert why in fs.why_impossible(path)
    for path in (tmp_path, tmp_path / "file", tmp_path / "missing" / "x"):
        assert fs.why_impossible(path) == ""


def test_what_is_at_a_path_is_said_in_words_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    said = {"file": "a file", "link": "a symbolic link", "pipe": "a named pipe", ".": "a directory", "missing": ""}
    assert {name: FileSystem().kind(tmp_path / name) for name in said} == said
    assert FileSystem().kind(Path("/dev/null")) == "a device"


@pytest.mark.parametrize("create", [False, True])
def test_an_interrupt_amid_an_open_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    """Or a session that is interrupted often runs out of them, and a lock that has one is held for good."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # of interrupts while something is freed
    monkeypatch.setattr(os, "open", lambda *given, real=os.open: opened.append(real(*given)) or opened[-1])
    opened: list[int] = []
    (tmp_path / "there").touch()
    for number in count(1):
        opened.clear()
        path = tmp_path / (f"new-{number}" if create else "there")
        interrupts = Interrupts(number, "spillable_stream/storage/")
        interrupts.run(lambda path=path: FileSystem().open(path, create=create).close())  # type: ignore[misc]
        for descriptor in opened:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        if not interrupts.hit:
            break
    assert number > 10


def test_an_interrupt_amid_the_sync_of_a_directory_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for number in count(1):
        interrupts = Interrupts(number, "durable_names.py")
        interrupts.run(lambda: FileSystem().sync_directory(tmp_path))
        if not interrupts.hit:
            break
    assert os.listdir("/proc/self/fd") == before
    assert number > 3
