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
from spillable_stream.log.identity import read_identity
from spillable_stream.log.owner import OWNER_FILE, read_owner
from spillable_stream.storage.filesystem import File, FileSystem
from tests.support.events import peek, put
from tests.support.fake_files import FaultyFileSystem, nth

FS = FileSystem()
Open = Callable[..., Channel]


def directories(path: Path) -> Directories:
    return Directories(FS, read_identity(FS, path))


def spread(tmp_path: Path, **options: object) -> Path:
    """Make a channel with one event in each of two data directories elsewhere, closed, and return its path."""
    path, data = tmp_path / "channel", [str(tmp_path / "d0"), str(tmp_path / "d1")]
    with Channel(path, data_dirs=data, minimum_required_space=0, max_file_size=1000, **options) as channel:
        for body in (b"a" * 600, b"b" * 600):
            put(channel, body)
    return path


def contents(path: Path) -> list[bytes]:
    with Channel(path, create=False, minimum_required_space=0) as channel:
        return [body[:1] for body in peek(channel)]


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
    with pytest.raises(ForeignDirectoryError, match=rf"{missing}, is not proven .* it has no owner.json. Is its"):
        Channel(path)
    assert list((tmp_path / missing).iterdir()) == []
    (tmp_path / missing).rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / missing)
    assert contents(path) == [b"a", b"b"]


def test_the_data_directory_of_another_channel_is_refused(tmp_path: Path) -> None:
    path = spread(tmp_path / "one")
    spread(tmp_path / "two")
    (tmp_path / "one" / "d0").rename(tmp_path / "away")
    shutil.copytree(tmp_path / "two" / "d0", tmp_path / "one" / "d0")
    with pytest.raises(ForeignDirectoryError, match=f"it belongs to the channel .* at {tmp_path}/two/channel"):
        Channel(path)


def test_directories_that_were_exchanged_are_refused(tmp_path: Path) -> None:
    path = spread(tmp_path)
    for source, target in (("d0", "x"), ("d1", "d0"), ("x", "d1")):
        (tmp_path / source).rename(tmp_path / target)
    with pytest.raises(ForeignDirectoryError, match="it is data-1 of the channel"):
        Channel(path)


def test_one_checkpoint_directory_is_not_given_to_two_channels(tmp_path: Path) -> None:
    shared = str(tmp_path / "checkpoints")
    with Channel(tmp_path / "one", checkpoint_dir=shared, minimum_required_space=0) as one:
        put(one, b"x")
        with pytest.raises(ForeignDirectoryError, match=r"is checkpoint of the channel .* at .*/one; give every"):
            Channel(tmp_path / "two", checkpoint_dir=shared)
    assert not (tmp_path / "two" / "channel.json").exists()


# ── copies and moves ────────────────────────────────────────────────────────────────────────────


def test_a_copy_does_not_get_the_originals_data_directories(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    with pytest.raises(ForeignDirectoryError, match=f"belongs to the channel at {path}, and this is a copy of that"):
        Channel(tmp_path / "copy")
    assert contents(path) == [b"a", b"b"]


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
    assert contents(tmp_path / "moved") == [b"a", b"b"]
    assert contents(tmp_path / "moved") == [b"a", b"b"]


def test_what_a_move_left_behind_does_not_fit_any_more(tmp_path: Path) -> None:
    """A backup that is restored at the old path, after the channel went on at the new one."""
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "backup")
    path.rename(tmp_path / "moved")
    assert contents(tmp_path / "moved") == [b"a", b"b"]
    shutil.rmtree(tmp_path / "moved")
    (tmp_path / "backup").rename(path)
    with pytest.raises(ForeignDirectoryError, match=f"it has been used by the channel at {tmp_path}/moved since"):
        Channel(path)


def test_a_move_that_is_cut_short_anywhere_is_done_again(tmp_path: Path) -> None:
    path = spread(tmp_path)
    for number in range(1, 20):
        path = path.rename(tmp_path / f"moved-{number}")
        fs = FaultyFileSystem()
        try:
            with fs.failing(nth("rename", number, OWNER_FILE)):
                Channel(path, fs=fs).close(checkpoint=False)
        except StorageError:
            assert contents(path) == [b"a", b"b"]
            tokens = {(o := read_owner(FS, d)) and o.token for d in (path, tmp_path / "d0", tmp_path / "d1")}
            assert len(tokens) == 1
        else:
            assert number == 5, "home, both data directories, home"
            return


def test_a_restored_channel_at_its_old_path_goes_on(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "backup")
    shutil.rmtree(path)
    (tmp_path / "backup").rename(path)
    assert contents(path) == [b"a", b"b"]


def test_a_copy_of_identity_and_data_alone_is_made_whole(path: Path, open_channel: Open, tmp_path: Path) -> None:
    with open_channel() as channel:
        put(channel, b"a")
    copy = tmp_path / "copy"
    shutil.copytree(path / "data", copy / "data")
    shutil.copy(path / "channel.json", copy)
    assert contents(copy) == [b"a"]
    assert contents(copy) == [b"a"]


def test_handles_of_a_moved_channel_that_open_together_all_open(tmp_path: Path) -> None:
    """One of them takes the directories along; nobody writes over what it wrote, and nobody is refused."""
    path = spread(tmp_path)
    for number in range(5):
        path = path.rename(tmp_path / f"moved-{number}")
        together = threading.Barrier(4)

        def opened(path: Path = path, together: threading.Barrier = together) -> list[bytes]:
            together.wait()
            return contents(path)

        with ThreadPoolExecutor(4) as threads:
            found = [threads.submit(opened) for _ in range(4)]
        assert [f.result() for f in found] == [[b"a", b"b"]] * 4
        owners = [read_owner(FS, d) for d in (path, tmp_path / "d0", tmp_path / "d1")]
        assert len({o and (o.token, o.home, o.next) for o in owners}) == 1


def test_a_repair_of_a_copy_does_not_take_directories_that_are_in_use(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    (tmp_path / "copy" / OWNER_FILE).unlink()
    with Channel(path, minimum_required_space=0) as channel:
        before = {d: read_owner(FS, tmp_path / d) for d in ("d0", "d1")}
        path.rename(tmp_path / "hidden")  # as in another container
        try:
            with pytest.raises(ChannelBusyError, match=r"d\d is held by another copy of"):
                repair(tmp_path / "copy")
        finally:
            (tmp_path / "hidden").rename(path)
        assert {d: read_owner(FS, tmp_path / d) for d in ("d0", "d1")} == before
        put(channel, b"c")
    assert contents(path) == [b"a", b"b", b"c"]


def test_an_original_that_cannot_be_read_is_still_there(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    (path / "channel.json").write_text("{")
    with pytest.raises(ForeignDirectoryError, match=f"belongs to the channel at {path}, and this is a copy of that"):
        Channel(tmp_path / "copy")


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
    assert contents(path) == []
    assert "looking at" in str(kept.value)


# ── while it is open ────────────────────────────────────────────────────────────────────────────


def test_an_owner_file_that_was_removed_from_under_handles_is_not_made_again(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"a")
    (path / OWNER_FILE).unlink()
    with pytest.raises(ChannelBusyError, match=r"owner.json was removed while the channel was open"):
        Channel(path)
    with pytest.raises(ChannelClosedError, match="was moved, removed or replaced"):
        channel.engine().log.directories.require_in_place()
    channel.close(checkpoint=False)
    assert contents(path) == [b"a"]


@pytest.mark.parametrize("name", ["lock", "open.lock"])
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
    assert contents(path) == [b"a"]


def test_a_missing_identity_is_no_reason_to_make_a_new_channel(path: Path, open_channel: Open) -> None:
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
