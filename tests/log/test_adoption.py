"""Channels of the first releases, which had no owner files."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from spillable_stream import Channel, ChannelBusyError, ForeignDirectoryError, StorageError
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.format.file_names import CLAIM_LOCK
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.adoption import adopt
from spillable_stream.log.identity_file import read_identity, write_identity
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.storage import lock
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.channels import snapshot
from tests.support.events import peek, put
from tests.support.fake_files import FaultyFileSystem, PausingFileSystem, nth
from tests.support.interleaving import Interleaving

FS = FileSystem()


def earlier(tmp_path: Path, files: int = 4) -> Path:
    """Create a channel as the first releases did, with two data directories elsewhere, and return its path."""
    path, data = tmp_path / "channel", [str(tmp_path / "d0"), str(tmp_path / "d1")]
    with Channel(path, data_dirs=data, minimum_required_space=0, max_file_size=1000) as channel:
        for number in range(files):
            put(channel, b"%d" % number * 600)
    write_identity(FS, replace(read_identity(FS, path), owned=False))
    for file in tmp_path.rglob(OWNER_FILE):
        file.unlink()
    return path


def contents(path: Path) -> list[bytes]:
    with Channel(path, create=False, minimum_required_space=0) as channel:
        return [body[:1] for body in peek(channel)]


@pytest.mark.parametrize("files", [1, 4])
def test_its_directories_get_owner_files_at_the_first_open(tmp_path: Path, files: int) -> None:
    """With one event the second data directory may be empty: no file belongs there."""
    path = earlier(tmp_path, files)
    assert "owned" not in json.loads((path / "channel.json").read_text())
    expected = [b"0", b"1", b"2", b"3"][:files]
    assert contents(path) == expected
    owned = {file.parent for file in tmp_path.rglob(OWNER_FILE)}
    assert owned == {path, path / "checkpoint", tmp_path / "d0", tmp_path / "d1"}
    assert read_identity(FS, path).owned
    assert contents(path) == expected


@pytest.mark.parametrize("missing", ["d0", "d1"])
@pytest.mark.parametrize("mount_point", [True, False])
def test_a_directory_that_is_not_mounted_is_refused(tmp_path: Path, missing: str, mount_point: bool) -> None:
    path = earlier(tmp_path)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    if mount_point:
        (tmp_path / missing).mkdir()
    with pytest.raises(ForeignDirectoryError, match=f"{missing} is not proven to be a directory of the channel"):
        Channel(path)
    assert not list(tmp_path.rglob(OWNER_FILE))
    if mount_point:
        (tmp_path / missing).rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / missing)
    assert contents(path) == [b"0", b"1", b"2", b"3"]


def test_data_files_of_another_channel_prove_nothing(tmp_path: Path) -> None:
    path, other = earlier(tmp_path / "one"), tmp_path / "two"
    earlier(other)
    shutil.rmtree(tmp_path / "one" / "d1")
    shutil.copytree(other / "d1", tmp_path / "one" / "d1")
    with pytest.raises(ForeignDirectoryError, match="no data file in it says that it is"):
        Channel(path)
    assert not list((tmp_path / "one").rglob(OWNER_FILE))


@pytest.mark.parametrize("first", ["original", "copy"])
def test_of_a_channel_and_its_copy_only_the_first_that_is_opened_gets_the_directories_elsewhere(
    tmp_path: Path, first: str
) -> None:
    """Both took them, by turns: nothing in them told one from the other."""
    original = earlier(tmp_path)
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    one, other = (original, copy) if first == "original" else (copy, original)
    assert contents(one) == [b"0", b"1", b"2", b"3"]
    before = snapshot(tmp_path)
    for is_readonly in (False, True):
        with pytest.raises(
            ForeignDirectoryError, match=f"d0 .*: it belongs to the channel at {one}, and this is a copy"
        ):
            Channel(other, create=False, readonly=is_readonly)
    assert not verify(other).healthy
    with pytest.raises(ForeignDirectoryError, match=f"move {one} away"):
        repair(other)
    assert snapshot(tmp_path) == before
    assert contents(one) == [b"0", b"1", b"2", b"3"]


def test_a_copy_gets_the_directories_elsewhere_by_a_claim_once_the_channel_that_has_them_is_gone(
    tmp_path: Path,
) -> None:
    original = earlier(tmp_path)
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    assert contents(original) == [b"0", b"1", b"2", b"3"]
    original.rename(tmp_path / "away")
    with pytest.raises(ForeignDirectoryError, match=f"--claim {tmp_path}/d0 --claim {tmp_path}/d1"):
        Channel(copy, create=False)
    repair(copy, claim=[tmp_path / "d0", tmp_path / "d1"])
    assert contents(copy) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(ForeignDirectoryError, match=rf"of the channel at {copy}\."):
        Channel(tmp_path / "away", create=False)


@pytest.mark.parametrize("seed", range(12))
def test_of_a_channel_and_its_copy_that_are_opened_at_once_one_has_the_directories_and_the_other_is_told(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wrote over the other's owner files: one had a part of them, or both were refused from then on."""
    original = earlier(tmp_path)
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    history, refused = Interleaving(seed), dict[Path, str]()
    monkeypatch.setattr(lock, "time", history)

    def first_open(path: Path) -> None:
        try:
            adopt(PausingFileSystem(history.pause), read_identity(FS, path))
        except ForeignDirectoryError as e:
            refused[path] = str(e)

    for path in (original, copy):
        history.client(partial(first_open, path))
    history.run()
    monkeypatch.undo()
    ((loser, told),) = refused.items()
    (winner,) = {original, copy} - refused.keys()
    assert (
        f"it belongs to the channel at {winner}, and this is a copy of that" in told and f"move {winner} away" in told
    )
    assert contents(winner) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(ForeignDirectoryError, match=f"it belongs to the channel at {winner}"):
        Channel(loser, create=False)
    assert not [*tmp_path.rglob(CLAIM_LOCK)]


def test_an_adoption_writes_an_owner_file_of_the_channels_own_directory_that_cant_be_read_anew(tmp_path: Path) -> None:
    """A repair was advised, which found nothing to do."""
    path = earlier(tmp_path)
    (path / OWNER_FILE).write_text("{")
    assert contents(path) == [b"0", b"1", b"2", b"3"]


def test_it_is_not_adopted_while_an_earlier_release_has_it_open(tmp_path: Path) -> None:
    path = earlier(tmp_path)
    lock = FileLock.open(FS, path / "open.lock")
    assert lock.try_acquire(shared=True)
    with pytest.raises(ChannelBusyError, match="is open in an earlier release of this package"):
        LocalEngine(FS, read_identity(FS, path), lock_timeout_seconds=0.05)
    lock.close()
    assert contents(path) == [b"0", b"1", b"2", b"3"]


def test_an_adoption_that_is_cut_short_anywhere_is_done_again(tmp_path: Path) -> None:
    path = earlier(tmp_path)
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    for number in range(1, 20):
        fs = FaultyFileSystem()
        try:
            with fs.failing(nth("sync", number)):
                Channel(path, fs=fs, minimum_required_space=0).engine().close()
        except StorageError:
            assert contents(path) == [b"0", b"1", b"2", b"3"]
        else:
            assert number > 5, "an owner file for each of four directories, and the identity"
            return
        for file in tmp_path.rglob("*"):
            if file.is_file():
                file.unlink()
        for file, data in before.items():
            file.write_bytes(data)


def test_an_earlier_release_that_is_on_its_way_out_is_waited_for(tmp_path: Path) -> None:
    path = earlier(tmp_path)
    theirs = FileLock.open(FS, path / "open.lock")
    assert theirs.try_acquire(shared=True)
    threading.Timer(0.3, theirs.close).start()
    assert contents(path) == [b"0", b"1", b"2", b"3"]


def test_handles_of_this_release_that_come_together_all_open(tmp_path: Path) -> None:
    path = earlier(tmp_path)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(contents, [path] * 4))
    assert found == [[b"0", b"1", b"2", b"3"]] * 4
