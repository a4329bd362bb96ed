"""An overlay shows the files below, keeps what is written, and changes nothing below."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spillable_stream.errors import ChannelClosedError, StorageError
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from spillable_stream.storage.overlay import OverlayFileSystem
from tests.support.channels import snapshot

_BELOW = bytes(range(1, 101))


@pytest.fixture
def fs() -> OverlayFileSystem:
    return OverlayFileSystem(FileSystem())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(_BELOW)
    return tmp_path / "file"


def test_what_is_written_over_a_file_shows_there_and_only_there(fs: OverlayFileSystem, path: Path) -> None:
    """As a plain array of bytes shows it, after any writes, cuts and reservations."""
    rng = random.Random(7)
    for _ in range(50):
        fs, expected = OverlayFileSystem(FileSystem()), bytearray(_BELOW)
        file, another = fs.open(path), fs.open(path, readonly=True)
        for _ in range(30):
            offset, data = rng.randrange(150), rng.randbytes(rng.randrange(40))
            match rng.randrange(4):
                case 0:
                    file.truncate(offset)
                    expected = expected[:offset].ljust(offset, b"\0")
                case 1:
                    file.preallocate(offset, len(data))
                    expected = expected.ljust(offset + len(data), b"\0")
                case _:
                    assert file.write(offset, [data[:5], data[5:]]) == len(data)
                    expected = expected.ljust(offset + len(data), b"\0")
                    expected[offset : offset + len(data)] = data
            assert (another.size(), fs.size_bytes(path)) == (len(expected), len(expected))
            assert another.read(0, 200) == another.load(200) == fs.read_file(path) == expected
            assert another.read(offset, 30) == expected[offset : offset + 30]
            shown = [i for a, b in another.data_ranges(0) for i in range(a, b)]
            assert shown == sorted(set(shown)) and all(i in shown for i, byte in enumerate(expected) if byte)
        file.close()
        another.close()
    assert path.read_bytes() == _BELOW


def test_a_file_that_nothing_was_written_over_shows_what_others_write(fs: OverlayFileSystem, path: Path) -> None:
    file = fs.open(path)
    path.write_bytes(b"longer" * 100)
    assert (file.size(), file.read(0, 6), file.load(6)) == (600, b"longer", b"longer")


def test_files_are_created_renamed_and_removed_in_the_view_alone(fs: OverlayFileSystem, path: Path) -> None:
    before = snapshot(path.parent)
    fs.write_atomically(path.with_name("new"), b"new")
    fs.write_atomically(path, b"other")
    assert fs.list_files(path.parent) == ["file", "new"]
    assert (fs.read_file(path), fs.read_file(path.with_name("new"))) == (b"other", b"new")
    fs.remove(path)
    assert (fs.exists(path), fs.is_file(path), fs.list(path.parent), fs.size_bytes(path)) == (False, False, ["new"], 0)
    with pytest.raises(FileNotFoundError):
        fs.open(path)
    fs.make_directory(path.parent / "directory")
    fs.write_atomically(path.parent / "directory" / "file", b"inside")
    assert fs.list(path.parent) == ["directory", "new"]
    assert fs.read_file(path.parent / "directory" / "file") == b"inside"
    assert fs.identity(path.parent / "directory") == fs.identity(path.parent)
    with pytest.raises(StorageError, match="exists"):
        fs.open(path.with_name("new"), create=True, exclusive=True)
    assert snapshot(path.parent) == before


def test_a_link_that_is_removed_hides_where_it_led(fs: OverlayFileSystem, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert fs.link_target(link) == tmp_path
    fs.remove(link)
    assert fs.link_target(link) is None
    assert (fs.list_files(link), fs.exists(link / "file"), fs.is_private_directory(link, tmp_path)) == (
        [],
        False,
        False,
    )
    assert link.is_symlink()


def test_a_lock_in_the_view_is_nobody_elses(fs: OverlayFileSystem, path: Path) -> None:
    real = FileLock.open(FileSystem(), path)
    assert real.try_acquire()
    private = FileLock.open(fs, path)
    assert private.try_acquire() and private.is_in_place()
    real.release()
    other = FileLock.open(FileSystem(), path)
    assert other.try_acquire()
    for lock in (real, private, other):
        lock.close()


def test_a_file_says_whether_it_is_the_one_at_its_path(fs: OverlayFileSystem, path: Path) -> None:
    file, made = fs.open(path), fs.open(path.with_name("made"), create=True)
    assert file.is_in_place() and file.is_linked() and made.is_in_place() and made.is_linked()
    assert file.identity() == FileSystem().identity(path)
    path.rename(path.with_name("moved"))
    assert not file.is_in_place() and file.is_linked()
    path.with_name("moved").unlink()
    assert not file.is_linked()
    file.close()
    made.close()
    assert not made.is_linked()
    with pytest.raises(ChannelClosedError):
        file.size()


def test_what_a_view_cannot_do_is_refused(fs: OverlayFileSystem, path: Path, tmp_path: Path) -> None:
    calls = (
        lambda: fs.link(tmp_path / "link", path),
        lambda: fs.rename(tmp_path, tmp_path.with_name("moved")),
        lambda: fs.make_private_directory(tmp_path / "private", tmp_path),
    )
    for call in calls:
        with pytest.raises(StorageError, match="open the channel once for writing"):
            call()
