"""The space of taken events is given back where a put or a take finds little."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    DiskSpaceError,
    Event,
    ForeignDirectoryError,
    StorageError,
    TransactionStateError,
)
from spillable_stream.engine import deliveries
from spillable_stream.engine.local import disk_room
from spillable_stream.engine.local.checkpointing import Checkpointing
from spillable_stream.engine.local.disk_room import DiskRoom
from spillable_stream.errors import LockTimeoutError
from spillable_stream.integrity.verify import verify
from spillable_stream.log import disk_space
from spillable_stream.storage.filesystem import FileSystem
from tests.lab.machine import mounted
from tests.support.damage import log_file
from tests.support.delays import clock_of, deliver_all, put_late
from tests.support.events import numbered, put, take
from tests.support.full_disk import DiskOf64MiB, drain, drain_without_a_word, fill, until_refused, used_bytes
from tests.support.mounts import NEEDS_MOUNTS
from tests.support.one_module import replace_in

Open = Callable[..., Channel]


MIB = 1 << 20


@pytest.mark.parametrize("max_file_size", [2**30, 8 * MIB])
def test_a_take_that_drains_a_full_disk_gives_its_space_back_at_once(
    open_channel: Open, path: Path, small_disk: DiskOf64MiB, max_file_size: int
) -> None:
    channel = open_channel(fs=small_disk, minimum_required_space=16 * MIB, max_file_size=max_file_size)
    until_refused(channel)
    drain(channel)
    assert used_bytes(path) < 2 * MIB
    put(channel, b"x")


def test_a_take_gives_back_each_file_that_it_empties_of_a_full_disk(
    open_channel: Open, path: Path, small_disk: DiskOf64MiB
) -> None:
    channel = open_channel(fs=small_disk, minimum_required_space=16 * MIB, max_file_size=8 * MIB)
    until_refused(channel)
    before = used_bytes(path)
    take(channel, 300)
    assert used_bytes(path) < before - 8 * MIB
    drain(channel)
    assert verify(path).healthy


def test_a_put_that_is_refused_gives_back_what_was_taken_before(
    open_channel: Open, path: Path, small_disk: DiskOf64MiB
) -> None:
    channel = open_channel(fs=small_disk)
    fill(channel, 16 * MIB)
    drain_without_a_word(channel)
    assert used_bytes(path) > 16 * MIB
    other = open_channel(fs=small_disk, minimum_required_space=48 * MIB)
    put(other, b"x")
    assert not log_file(path, 1).exists()
    assert take(channel) == [b"x"]


def test_a_put_for_which_nothing_can_be_given_back_is_refused(open_channel: Open, small_disk: DiskOf64MiB) -> None:
    channel = open_channel(fs=small_disk, minimum_required_space=16 * MIB)
    until_refused(channel)
    with pytest.raises(DiskSpaceError, match="make room, or take events"):
        put(channel, bytes(64 << 10))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("use", ["put", "take"])
def test_what_is_committed_is_no_error_because_nothing_can_be_given_back(
    open_channel: Open, path: Path, small_disk: DiskOf64MiB, use: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"fs": small_disk, "minimum_required_space": 16 * MIB, "max_file_size": 8 * MIB}
    channel, other = open_channel(**options), open_channel(**options)
    until_refused(channel)
    (path / "checkpoint").rename(path / "elsewhere")
    if use == "take":
        assert len(take(channel, 300)) == 300
        assert channel.stats().groups["default"].position == 300
    else:
        take(other, 300)
        last = channel.stats().last_id
        put(channel, b"x")
        assert channel.stats().last_id == last + 1
    assert "taken events keep their disk space" in caplog.text
    (path / "elsewhere").rename(path / "checkpoint")


def test_a_put_that_is_staged_is_tried_again_once_there_is_room(open_channel: Open, small_disk: DiskOf64MiB) -> None:
    options = {"fs": small_disk, "minimum_required_space": 16 * MIB}
    channel = open_channel(**options)
    until_refused(channel)
    drain_without_a_word(channel)
    with channel.put_transaction() as tx:
        for _ in range(200):
            tx.put(Event(bytes(64 << 10)))
    assert channel.stats().channel_size == 200


def test_two_puts_that_are_refused_at_once_both_find_the_room_that_one_makes(
    open_channel: Open, small_disk: DiskOf64MiB, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(fs=small_disk, minimum_required_space=16 * MIB)
    until_refused(channel)
    drain_without_a_word(channel)
    give_back = Checkpointing.give_back_within_a_call

    def late(self: Checkpointing, timeout_seconds: float) -> None:
        give_back(self, timeout_seconds)  # another thread was faster
        give_back(self, timeout_seconds)

    monkeypatch.setattr(Checkpointing, "give_back_within_a_call", late)
    put(channel, bytes(8 * MIB))


class UnknownDisk(FileSystem):
    """A file system that may not tell its free space."""

    tells = True

    def free_bytes(self, path: Path) -> int:
        if not self.tells:
            raise StorageError("statvfs failed")
        return super().free_bytes(path)


class NearlyFullDisk(FileSystem):
    """A file system that is always nearly full."""

    def free_bytes(self, path: Path) -> int:
        return MIB


def test_where_the_free_space_is_not_known_nothing_is_given_back(
    open_channel: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = UnknownDisk()
    channel = open_channel(fs=fs)
    fill(channel)
    drain(channel)
    fs.tells = False
    before = used_bytes(path)
    channel.engine().make_room_if_short()
    assert used_bytes(path) == before
    assert "the free space is not known: statvfs failed" in caplog.text


def test_where_there_is_much_room_only_a_put_that_was_refused_asks_for_more(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    fill(channel)
    drain(channel)
    channel.engine().make_room_if_short()
    assert used_bytes(path) > 4 * MIB
    channel.engine().make_room()
    assert used_bytes(path) < MIB


def test_takes_give_space_back_once_a_second_and_only_if_they_emptied_a_file(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, given = [1000.0], list[float]()
    channel = open_channel(fs=NearlyFullDisk(), max_file_size=1000)
    for body in numbered(0, 40):
        put(channel, body * 200)
    replace_in(monkeypatch, disk_room, "time", monotonic=lambda: now[0])
    monkeypatch.setattr(disk_room.DiskRoom, "_give_back", lambda _, timeout_seconds: given.append(timeout_seconds))
    for _ in range(5):
        take(channel, 4)
    assert given == [0], "it does not wait for a checkpoint of another process"
    now[0] += 1
    take(channel, 4)
    assert given == [0, 0]
    now[0] += 1
    for _ in range(5):
        channel.engine().room.after_a_commit()
    assert given == [0, 0]


def test_a_put_does_not_fail_because_another_process_creates_a_checkpoint(
    open_channel: Open, small_disk: DiskOf64MiB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(fs=small_disk)

    def busy(self: Checkpointing, timeout_seconds: float) -> None:
        raise LockTimeoutError("held")

    monkeypatch.setattr(Checkpointing, "give_back_within_a_call", busy)
    with caplog.at_level(logging.WARNING):
        channel.engine().make_room()
    assert caplog.text == ""


def test_room_is_not_made_inside_of_another_call_of_the_thread(open_channel: Open) -> None:
    engine = open_channel().engine()
    room: DiskRoom = engine.room
    with pytest.raises(TransactionStateError, match=r"a checkpoint of .* inside a commit of the same thread"):
        engine.active_calls.run("a commit", room.make)
    engine.active_calls.run("a commit", room.make_within_a_commit)


@pytest.mark.parametrize("max_file_size", [2**30, 20 * MIB])
def test_kept_events_in_a_file_larger_than_what_lacks_are_the_first_to_go(
    open_channel: Open, small_disk: DiskOf64MiB, monkeypatch: pytest.MonkeyPatch, max_file_size: int
) -> None:
    monkeypatch.setattr(disk_space, "_NEARLY_FULL_BYTES", 4 * MIB)
    options = {"minimum_required_space": 16 * MIB, "max_file_size": max_file_size}
    channel = open_channel(fs=small_disk, retention_ms=3_600_000, **options)
    channel.engine().upkeep.stop()
    for _ in range(200):
        put(channel, bytes(512 << 10))
        assert len(take(channel)) == 1
    assert channel.engine().state.first_kept > 1


# ── several disks ───────────────────────────────────────────────────────────────────────────────


def fill_up(directory: Path) -> Path:
    """Fill a disk to the last byte, as another program does, and return the file."""
    path = directory / "of another program"
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left on device"):
        while True:
            file.write(bytes(4096))
    return path


def names(directory: Path, kind: str) -> set[str]:
    """Return the files of a kind in a directory."""
    return {path.name for path in directory.glob(f"{kind}*")}


@pytest.mark.parametrize("required_bytes", [0, MIB])
def test_where_one_of_two_disks_is_full_all_goes_to_the_other_until_there_is_room_again(
    tmp_path: Path, required_bytes: int
) -> None:
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    options = {"minimum_required_space": required_bytes, "max_file_size": MIB, "max_inline_bytes": MIB}
    with mounted(one, 64 * MIB), mounted(two, 64 * MIB):
        dirs = [one / "data", two / "data"]
        with Channel(tmp_path / "channel", data_dirs=dirs, **options) as channel:
            fill(channel, 2 * MIB)
            full = next(d for d in dirs if log_file_is_written_in(channel, d))
            other = dirs[1 - dirs.index(full)]
            before = names(full, "")
            filler = fill_up(full.parent)
            fill(channel, 4 * MIB)
            put(channel, *[bytes(64 << 10)] * 64)  # is staged
            for seconds in (60, 3600):
                put_late(channel, seconds, b"x")
            assert names(full, "") == before
            assert names(other, "segment.") and names(other, "delayed-")
            assert len(take(channel, 32)) == 32
            filler.unlink()
            fill(channel, 4 * MIB)
            assert len(names(full, "log-") - before) >= 2, "the files are spread again"
            assert verify(channel.path).healthy
        with Channel(tmp_path / "channel") as channel:
            assert len(take(channel, 1000)) == (10 * MIB >> 16) - 32 + 64
            assert channel.stats().delayed.events == 2


@pytest.mark.parametrize("waits", [False, True])
def test_delayed_events_are_delivered_to_the_other_disk_where_one_is_full(
    tmp_path: Path, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody puts or takes, which would leave the full one."""
    monkeypatch.setattr(deliveries, "_AGAIN_SECONDS", 0.01)
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    with mounted(one, 32 * MIB), mounted(two, 32 * MIB):
        dirs = [one / "data", two / "data"]
        with Channel(tmp_path / "channel", data_dirs=dirs, minimum_required_space=0) as channel:
            clock = clock_of(channel)
            put(channel, b"x")
            for _ in range(8):
                put_late(channel, 60, bytes(MIB))
            full = next(d for d in dirs if log_file_is_written_in(channel, d))
            fill_up(full.parent)
            clock.pass_by(61)
            if waits:
                assert channel.engine().wait_for(lambda state: not state.delays.events, 10)
            else:
                deadline = time.monotonic() + 10
                while channel.stats().delayed.events and time.monotonic() < deadline:
                    deliver_all(channel)
            assert not log_file_is_written_in(channel, full)
            assert len(take(channel, 100)) == 9


def log_file_is_written_in(channel: Channel, directory: Path) -> bool:
    """Tell whether the newest data file is in a directory."""
    engine = channel.engine()
    return engine.layout.log_file(engine.follower.positions.disk.file_id).parent == directory  # type: ignore[attr-defined]


def test_a_put_is_refused_when_both_disks_are_full_and_takes_make_room_on_each(tmp_path: Path) -> None:
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    options = {"minimum_required_space": 0, "max_file_size": MIB}
    with mounted(one, 8 * MIB), mounted(two, 16 * MIB):
        with Channel(tmp_path / "channel", data_dirs=[one / "data", two / "data"], **options) as channel:
            with pytest.raises(DiskSpaceError, match=r"or take events: what is left of .* is kept for takes"):
                fill(channel, 64 * MIB)
            assert channel.stats().channel_size > 20 * MIB >> 16
            drain(channel)
            fill(channel, 16 * MIB)
        assert verify(tmp_path / "channel").healthy


@NEEDS_MOUNTS
@pytest.mark.parametrize("another", [False, True])
def test_a_disk_that_is_unmounted_or_replaced_under_a_handle_is_named_and_no_data_loss(
    request: pytest.FixtureRequest, tmp_path: Path, another: bool
) -> None:
    (disk := tmp_path / "disk").mkdir()
    (backing := tmp_path / "backing").mkdir()
    request.addfinalizer(lambda: subprocess.run(["umount", "--lazy", disk], capture_output=True))
    subprocess.run(["mount", "--bind", backing, disk], check=True)
    with Channel(tmp_path / "channel", data_dirs=[disk / "data"], checkpoint_on_close=False) as channel:
        put(channel, b"x")
        subprocess.run(["umount", "--lazy", disk], check=True)
        if another:
            (disk / "data").mkdir()
        for use in (lambda: put(channel, b"y"), lambda: take(channel), channel.checkpoint):
            with pytest.raises(ChannelClosedError, match=f"^{disk}/data was moved, .* or its disk unmounted"):
                use()
    with pytest.raises(ForeignDirectoryError, match="Its disk may not be mounted"):
        Channel(tmp_path / "channel")
    assert list(disk.glob("data/*")) == []
    subprocess.run(["mount", "--bind", backing, disk], check=True)
    with Channel(tmp_path / "channel") as channel:
        assert take(channel) == [b"x"]
