from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.sources.tailed_file import HEAD_BYTES, TAIL_BYTES, Mark, TailedFile


def tailed(path: Path) -> TailedFile:
    return TailedFile(str(path), "g", Mark(path.stat().st_ino, 0))


def data_of(file: TailedFile) -> bytes | None:
    chunk = file.read(10)
    return None if chunk is None else chunk.data


@pytest.mark.parametrize("step", [1, 100, TAIL_BYTES, 5000])
def test_a_mark_knows_the_first_bytes_and_the_last_ones(tmp_path: Path, step: int) -> None:
    data = os.urandom(3000)
    (tmp_path / "f").write_bytes(data)
    file = tailed(tmp_path / "f")
    while file.mark.position < len(data):
        chunk = file.read(step)
        assert chunk is not None
        file.mark = chunk.mark_after(len(chunk.data))
    assert (file.mark.position, file.mark.head_bytes, file.mark.tail_bytes) == (3000, HEAD_BYTES, TAIL_BYTES)
    (tmp_path / "copy").write_bytes(data + b"more")
    assert tailed(tmp_path / "copy").continues(file.mark)
    for other in (data[:2999], b"x" + data[1:], data[:-1] + b"x", b""):
        (tmp_path / "copy").write_bytes(other)
        assert not tailed(tmp_path / "copy").continues(file.mark) or other == data


def test_a_file_that_was_written_anew_is_not_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\n")
    file = tailed(tmp_path / "f")
    whole = file.read(4)
    assert whole is not None
    file.mark = whole.mark_after(4)
    assert data_of(file) == b""
    for text in (b"two\n", b"two\nthree\n", b"o", b""):
        (tmp_path / "f").write_bytes(text)
        assert file.read(10) is None


@pytest.mark.parametrize("ticks", [100, 1000])
def test_a_file_that_was_written_anew_with_the_same_last_lines_is_not_what_was_read(tmp_path: Path, ticks: int) -> None:
    (tmp_path / "f").write_bytes(b"start 1\n" + b"tick\n" * ticks)
    file = tailed(tmp_path / "f")
    whole = file.read(1 << 20)
    assert whole is not None
    file.mark = whole.mark_after(len(whole.data))
    (tmp_path / "f").write_bytes(b"start 2\n" + b"tick\n" * (ticks + 1))
    assert file.read(10) is None


def test_a_renamed_file_is_read_on_and_another_one_at_its_path_is_not_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\n")
    file = tailed(tmp_path / "f")
    file.open()
    (tmp_path / "f").rename(tmp_path / "g")
    (tmp_path / "f").write_bytes(b"other\n")
    assert data_of(file) == b"one\n"
    file.close()
    assert not file.is_open
    with pytest.raises(FileNotFoundError):
        file.open()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StorageError, match="loop"):
        TailedFile(str(tmp_path / "loop"), "g", Mark(1, 0)).open()


def test_a_file_whose_mount_fails_as_it_is_opened_is_an_error_of_storage_and_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try left another one open."""
    (tmp_path / "f").write_bytes(b"one\n")
    file, opened = tailed(tmp_path / "f"), list[int]()

    def stale(descriptor: int) -> os.stat_result:
        opened.append(descriptor)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", stale)
        with pytest.raises(StorageError, match="Stale file handle"):
            file.open()
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
    assert not file.is_open
