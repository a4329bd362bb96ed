"""An open file: reads, writes and syncs whole, and says which file it is."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spillable_stream.errors import ChannelClosedError, StorageError
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.support.forks import in_child
from tests.support.interrupts import Interrupts

FS = FileSystem()


def link_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def fail_if_open(path: Path) -> None:
    """Raise if this process has a descriptor of a file."""
    found = [fd for fd in os.listdir("/proc/self/fd") if link_of(fd) == str(path)]
    assert not found


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


SIZES = [0, 1, 16 << 10, (16 << 10) + 1, 1 << 18]


@pytest.mark.parametrize("size", SIZES)
def test_as_much_is_read_as_was_asked_for_and_less_only_at_the_end(tmp_path: Path, size: int) -> None:
    content = Random(size).randbytes(size + 10)
    (tmp_path / "f").write_bytes(content)
    file = FS.open(tmp_path / "f", readonly=True)
    assert file.read(3, size) == content[3 : size + 3]
    assert file.read_buffer(20, size).to_pybytes() == content[20:] == file.read(20, size)
    assert file.read(size + 10, 5) == b""
    file.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_short_read_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    content = Random(size).randbytes(size)
    (tmp_path / "f").write_bytes(content)
    real, reads = os.preadv, []

    def short(fd: int, buffers: list[Any], at: int) -> int:
        reads.append(at)
        return real(fd, [memoryview(buffers[0])[:5_000]], at)

    monkeypatch.setattr(os, "preadv", short)
    file = FS.open(tmp_path / "f", readonly=True)
    assert file.read(0, size) == content == file.read(0, size + 100)
    assert len(reads) >= 2 * (size // 5_000)
    file.close()


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


def test_a_closed_file_is_not_linked_and_one_that_cannot_be_looked_at_is_an_error(
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


def test_a_file_that_nobody_has_any_more_is_closed_though_an_interrupt_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its lock would be held for as long as the process lives."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    for number in count(1):
        held = [FileSystem().open(tmp_path / "file", create=True)]
        descriptor = held[0].fileno()
        interrupts = Interrupts(number, "storage/file.py")
        interrupts.run(held.clear)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        if not interrupts.hit:
            break
    assert number > 3


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
        assert go_on.wait(60)
        return fd

    monkeypatch.setattr(os, "open", slow_open)
    files: list[File] = []
    opening = threading.Thread(target=lambda: files.append(FS.open(tmp_path / "f", create=True)))
    opening.start()
    assert opened.wait(60)
    threading.Timer(0.1, go_on.set).start()
    in_child(lambda: fail_if_open(tmp_path / "f"))
    assert go_on.is_set()
    opening.join()
    files[0].close()
