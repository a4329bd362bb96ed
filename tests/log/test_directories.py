"""Who holds a channel's directories, and which are its own."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spillable_stream import Channel, ChannelBusyError, ChannelClosedError, ForeignDirectoryError
from spillable_stream.errors import NotAChannelError, SpillableError, StorageError
from spillable_stream.integrity.repair import repair
from spillable_stream.log.directories import Directories
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.owner_file import OWNER_FILE, read_owner
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import first_bytes, spread
from tests.support.events import put
from tests.support.fake_files import FaultyFileSystem, nth

FS = FileSystem()
Open = Callable[..., Channel]


def directories(path: Path) -> Directories:
    return Directories(FS, read_identity(FS, path))


# ── who holds the channel ───────────────────────────────────────────────────────────────────────


def test_whoever_comes_first_is_alone_and_then_shares(path: Path, open_channel: Open) -> None:
    open_channel().close()
    first, second = directories(path), directories(path)
    assert first.try_first()
    first.prove(first=True)
    assert not second.try_first()
    assert not second.try_join()
    assert first.share()
    assert second.try_join()
    second.prove(first=False)
    first.close()
    third = directories(path)
    assert not third.try_first(), "the second still holds it"
    second.close()
    assert third.try_first()
    third.close()


def test_every_handle_that_may_write_holds_the_channel_parked_ones_too(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    probe = directories(path)
    assert not probe.try_first()
    channel.park()
    assert not probe.try_first()
    assert channel.resume()
    channel.close()
    assert probe.try_first()
    probe.close()


# ── what is not proven ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("missing", ["d0", "d1"])
def test_a_data_directory_that_is_not_mounted_is_refused(tmp_path: Path, missing: str) -> None:
    path = spread(tmp_path)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    (tmp_path / missing).mkdir()  # the mount point
    with pytest.raises(
        ForeignDirectoryError,
        match=rf"the data directory .*{missing} of .* not proven .* no owner.json. Its disk",
    ):
        Channel(path)
    assert list((tmp_path / missing).iterdir()) == []
    (tmp_path / missing).rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / missing)
    assert first_bytes(path) == [b"a", b"b"]


# ── copies and moves ────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("settles_soon")
def test_a_copy_is_refused_while_its_original_is_open_where_it_cannot_be_seen(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    channel = Channel(path, minimum_required_space=0)
    path.rename(tmp_path / "hidden")
    try:
        with pytest.raises(ChannelBusyError, match="d0 is held by another copy of"):
            Channel(tmp_path / "copy")
    finally:
        (tmp_path / "hidden").rename(path)
        channel.close()


def test_a_moved_channel_takes_its_directories_along(tmp_path: Path) -> None:
    path = spread(tmp_path)
    path.rename(tmp_path / "moved")
    assert first_bytes(tmp_path / "moved") == [b"a", b"b"]
    assert first_bytes(tmp_path / "moved") == [b"a", b"b"]


def test_a_move_that_is_cut_short_anywhere_is_done_again(tmp_path: Path) -> None:
    path = spread(tmp_path)
    for number in range(1, 20):
        path = path.rename(tmp_path / f"moved-{number}")
        fs = FaultyFileSystem()
        try:
            with fs.failing(nth("rename", number, OWNER_FILE)):
                Channel(path, fs=fs).close(checkpoint=False)
        except StorageError:
            assert first_bytes(path) == [b"a", b"b"]
            directories = (path, tmp_path / "d0", tmp_path / "d1", path / "checkpoint")
            tokens = {(o := read_owner(FS, d)) and o.token for d in directories}
            assert len(tokens) == 1
        else:
            assert number == 6, "home, both data directories, the one for checkpoints, home"
            return


def test_a_restored_channel_at_its_old_path_continues(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "backup")
    shutil.rmtree(path)
    (tmp_path / "backup").rename(path)
    assert first_bytes(path) == [b"a", b"b"]


def test_handles_of_a_moved_channel_that_open_together_all_open(tmp_path: Path) -> None:
    """One of them takes the directories along; nobody writes over what it wrote, and nobody is refused."""
    path = spread(tmp_path)
    for number in range(5):
        path = path.rename(tmp_path / f"moved-{number}")
        together = threading.Barrier(4)

        def opened(path: Path = path, together: threading.Barrier = together) -> list[bytes]:
            together.wait()
            return first_bytes(path)

        with ThreadPoolExecutor(4) as threads:
            found = [threads.submit(opened) for _ in range(4)]
        assert [f.result() for f in found] == [[b"a", b"b"]] * 4
        # A handle overtaken between two of its writes leaves the rest of the move to the next to come first.
        assert first_bytes(path) == [b"a", b"b"]
        owners = [read_owner(FS, d) for d in (path, tmp_path / "d0", tmp_path / "d1")]
        assert len({o and (o.token, o.home, o.next) for o in owners}) == 1


def test_an_error_that_somebody_keeps_keeps_no_lock(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its traceback has the frames, and these have what was opened."""
    open_channel().close()

    def failing(self: File) -> bool:
        raise StorageError(f"looking at {self.path} failed")

    with monkeypatch.context() as patch:
        patch.setattr(File, "is_in_place", failing)
        with pytest.raises(StorageError) as kept:
            Channel(path, minimum_required_space=0)
    assert first_bytes(path) == []
    assert "looking at" in str(kept.value)


# ── while it is open ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["lock", "open.lock"])
@pytest.mark.usefixtures("settles_soon")
def test_a_lock_file_that_was_removed_from_under_handles_is_not_made_again(
    path: Path, open_channel: Open, name: str
) -> None:
    channel = open_channel()
    put(channel, b"a")
    (path / name).unlink()
    with pytest.raises(ChannelBusyError, match=f"{name} was removed while other handles have the channel open"):
        Channel(path)
    if name == "lock":
        with pytest.raises(ChannelClosedError, match="lock was moved, removed or replaced"):
            put(channel, b"b")
        channel.engine().close()
    else:
        channel.close()
    assert first_bytes(path) == [b"a"]


def test_a_missing_identity_is_no_reason_to_create_a_new_channel(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"a")
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "channel.json"}
    (path / "channel.json").unlink()
    for create in (True, False):
        with pytest.raises(NotAChannelError, match=r"channel\.json"):
            Channel(path, create=create)
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


def test_a_repair_beside_handles_without_their_open_lock_is_refused(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"a")
    (path / "open.lock").unlink()
    (path / "channel.json").write_text("{")
    with pytest.raises(ChannelBusyError):
        repair(path)
    channel.close(checkpoint=False)


@pytest.mark.parametrize("name", [OWNER_FILE, "data/" + OWNER_FILE, "lock", "open.lock", "head", "channel.json"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(path: Path, open_channel: Open, name: str) -> None:
    open_channel().close()
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(SpillableError, match=Path(name).name):
        Channel(path, minimum_required_space=0)
