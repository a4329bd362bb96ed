from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spillable_stream.errors import ChannelClosedError, StorageError
from spillable_stream.storage.filesystem import File, FileSystem
from tests.support.fake_files import FaultyFileSystem, nth

FS = FileSystem()


def test_many_buffers_are_written_one_after_the_other(tmp_path: Path) -> None:
    """More of them than one system call takes, empty ones among them."""
    buffers = [b"%d," % i if i % 3 else b"" for i in range(3000)]
    file = FS.open(tmp_path / "f", create=True)
    assert file.write(5, buffers) == len(b"".join(buffers))
    assert file.read(5, 1 << 20) == b"".join(buffers)
    assert file.read(0, 5) == bytes(5)
    file.close()


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, views, at: real(fd, [views[0][:3]], at))
    file = FS.open(tmp_path / "f", create=True)
    file.write(0, [b"hello ", b"", b"world"])
    assert file.read(0, 100) == b"hello world"
    file.close()


def test_a_short_read_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"hello world")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 3), at))
    file = FS.open(tmp_path / "f", readonly=True)
    assert file.read(1, 100) == b"ello world"
    assert file.read(100, 5) == b""
    file.close()


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
    assert FS.list(tmp_path / "none") == []
    FS.remove(tmp_path / "none")


def test_preallocated_blocks_read_as_zeros(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    file.preallocate(0, 1 << 20)
    assert file.size() == 1 << 20
    assert file.read(1000, 16) == bytes(16)
    file.truncate(10)
    assert file.size() == 10
    file.close()
    file.close()  # again is fine


def test_a_sync_can_be_begun_ahead_and_never_fails(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    file.write(0, [b"x" * 100_000])
    file.start_sync(0, 100_000)
    file.sync()
    assert file.read(0, 200_000) == b"x" * 100_000
    file.close()
    file.start_sync(0, 100_000)  # what is wrong is said by the sync that counts


def test_an_open_file_tells_whether_its_path_leads_to_it(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    assert file.identity() == FS.identity(tmp_path / "f")
    FS.open(tmp_path / "g", create=True).close()
    FS.rename(tmp_path / "g", tmp_path / "f")
    assert file.identity() != FS.identity(tmp_path / "f")
    file.close()


def test_a_closed_file_is_not_linked_and_one_that_can_not_be_looked_at_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks till a file is linked would ask for ever."""
    file = FileSystem().open(tmp_path / "f", create=True)
    assert file.is_linked()

    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fails)
        with pytest.raises(StorageError, match=f"looking at {tmp_path}/f failed"):
            file.is_linked()
    file.close()
    assert not file.is_linked()


def test_nothing_is_read_of_a_file_that_is_empty_or_asked_for_nothing(tmp_path: Path) -> None:
    file = FileSystem().open(tmp_path / "file", create=True)
    assert (file.read(0, 0), file.read(0, 8)) == (b"", b"")
    file.write(0, [b"abc"])
    assert (file.read(1, 0), file.read(1, 8), file.read(9, 8)) == (b"", b"bc", b"")
    file.close()


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


def in_child(work: Callable[[], None]) -> None:
    """Run ``work`` in a forked child and raise what it says is wrong."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            work()
            os.write(writer, b"ok")
        except BaseException as e:
            os.write(writer, repr(e).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert said == b"ok", said.decode()


def test_no_file_survives_into_a_forked_child(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    fd = file.fileno()
    uses: list[Callable[[], object]] = [
        lambda: file.write(0, [b"x"]), lambda: file.read(0, 1), file.size, file.sync, file.identity, file.fileno,
        lambda: file.truncate(0), lambda: file.preallocate(0, 1), lambda: file.load(1),
        lambda: file.store(0, b"x"), file.is_in_place, lambda: file.data_ranges(0),
    ]  # fmt: skip

    def child() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        for use in uses:
            with pytest.raises(ChannelClosedError, match=r"f was closed; .*: open the channel again"):
                use()
        assert not file.is_linked()
        file.close()

    in_child(child)
    file.write(0, [b"the parent's"])
    assert file.read(0, 20) == b"the parent's"
    file.close()
    for use in uses:
        with pytest.raises(ChannelClosedError, match="f was closed"):
            use()


def test_a_fork_waits_for_the_opening_of_a_file_in_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the child would have a descriptor that nobody knows of, and its lock."""
    opened, go_on, real = threading.Event(), threading.Event(), os.open

    def slow_open(*arguments: Any) -> int:
        fd = real(*arguments)
        opened.set()
        assert go_on.wait(20)
        return fd

    monkeypatch.setattr(os, "open", slow_open)
    files: list[File] = []
    opening = threading.Thread(target=lambda: files.append(FS.open(tmp_path / "f", create=True)))
    opening.start()
    assert opened.wait(20)
    threading.Timer(0.1, go_on.set).start()
    in_child(lambda: fail_if_open(tmp_path / "f"))
    assert go_on.is_set()
    opening.join()
    files[0].close()


def fail_if_open(path: Path) -> None:
    """Raise if this process has a descriptor of a file."""
    found = [fd for fd in os.listdir("/proc/self/fd") if link_of(fd) == str(path)]
    assert not found


def link_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
