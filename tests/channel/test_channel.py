"""The handle: creating, opening, options, and every refusal."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import shutil
import stat
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import (
    Channel,
    CorruptionError,
    Event,
    ForeignDirectoryError,
    LockUnsupportedError,
    NotAChannelError,
    OptionError,
    SpillableError,
    StorageError,
    UnsupportedFormatError,
)
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.integrity.verify import verify
from spillable_stream.progress import Progress
from spillable_stream.storage.lock import FileLock
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


# ── creating ────────────────────────────────────────────────────────────────────────────────────


def test_a_channel_is_created_where_there_is_none_and_is_private(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    assert channel.schema.equals(EVENT_SCHEMA) and not channel.typed
    assert {p.name for p in path.iterdir()} >= {"channel.json", "data", "checkpoint", "groups", "head", "lock"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "data" / "log-000001").stat().st_mode) == 0o600


def test_a_missing_channel_is_not_created_unless_asked(path: Path) -> None:
    with pytest.raises(NotAChannelError, match="is not a channel: it is missing"):
        Channel(path, create=False)
    assert not path.exists()


def test_a_directory_of_other_things_is_refused_and_left_alone(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    for create in (True, False):
        with pytest.raises(NotAChannelError):
            Channel(path, create=create)
    assert [p.name for p in path.iterdir()] == ["notes.txt"]


def test_a_file_in_the_place_of_the_directory_is_refused(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(SpillableError, match="channel"):
        Channel(path)
    assert path.read_text() == "a file"


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_creation_that_failed_anywhere_can_be_done_again(tmp_path: Path, step: int) -> None:
    number, whole = 0, False
    while not whole:
        number += step
        fs, made = FaultyFileSystem(), [0]

        def chosen(_: object, made: list[int] = made, number: int = number) -> bool:
            made[0] += 1
            return made[0] == number

        with fs.failing(chosen):
            try:
                Channel(tmp_path / str(number), fs=fs).close()
                whole = made[0] < number
            except StorageError as e:
                assert "made to fail" in str(e)
        with Channel(tmp_path / str(number), minimum_required_space=0) as channel:
            put(channel, b"x")
            assert peek(channel) == [b"x"]
    assert number > 15


def test_threads_that_create_one_channel_at_once_share_it(path: Path) -> None:
    uuids, barrier = set(), threading.Barrier(8)

    def create() -> None:
        barrier.wait()
        with Channel(path) as channel:
            uuids.add(channel.uuid)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(uuids) == 1


def test_a_directory_without_write_permission_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for others than root, whom permissions do not bind."""

    def mkdir(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(StorageError, match=rf"creating the directory {path} failed: Permission denied"):
        Channel(path)


def test_a_channel_that_may_not_be_written_is_refused(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_channel().close()
    real = os.open

    def denied(name: str, flags: int, *rest: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied")
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(
        StorageError,
        match=r"opening .* failed: Permission denied \(errno 13\); it, or a directory above it, is closed to uid \d+",
    ):
        Channel(path)


def test_a_file_system_without_locks_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileLock, "try_acquire", lambda self, shared=False: True)
    with pytest.raises(LockUnsupportedError, match="put the channel on a local file system"):
        Channel(path)
    assert not (path / "channel.json").exists()


# ── opening ─────────────────────────────────────────────────────────────────────────────────────


def test_what_was_stored_is_there_after_reopening(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, *numbered(0, 10))
        take(channel, 4)
        uuid = channel.uuid
    with open_channel(create=False) as channel:
        assert (channel.uuid, peek(channel)) == (uuid, numbered(4, 6))
        assert put(channel, b"x") == (11, 11)


def test_a_newer_format_is_refused(path: Path, open_channel: Open) -> None:
    open_channel().close()
    identity = path / "channel.json"
    value = json.loads(identity.read_text())
    del value["checksum"]
    identity.write_text(json.dumps({**value, "format": 2}))
    with pytest.raises(UnsupportedFormatError, match="has format version 2; this package reads up to 3: upgrade"):
        Channel(path)


def test_a_damaged_identity_is_refused_and_not_overwritten(path: Path, open_channel: Open) -> None:
    open_channel().close()
    (path / "channel.json").write_text("{")
    with pytest.raises(CorruptionError, match="identity can't be read"):
        Channel(path)
    assert (path / "channel.json").read_text() == "{"


def test_a_moved_channel_opens(path: Path, tmp_path: Path, open_channel: Open) -> None:
    with open_channel(max_inline_bytes=0) as channel:
        put(channel, b"x")
    shutil.move(path, tmp_path / "moved")
    with Channel(tmp_path / "moved", create=False) as channel:
        assert peek(channel) == [b"x"]


# ── options ─────────────────────────────────────────────────────────────────────────────────────


def test_options_are_stored_and_may_be_changed(path: Path, open_channel: Open) -> None:
    open_channel(overflow_capacity=7, keep_alive="1.5").close()
    with open_channel() as channel:
        assert (channel.options["overflow_capacity"], channel.options["keep_alive"]) == (7, 1.5)
    open_channel(overflow_capacity=8).close()
    assert open_channel().options["overflow_capacity"] == 8


def test_directories_hold_what_they_are_for(path: Path, tmp_path: Path, open_channel: Open) -> None:
    directories = {
        "data_dirs": [str(tmp_path / "disk1"), str(tmp_path / "disk2")],
        "checkpoint_dir": str(tmp_path / "checkpoints"),
        "backup_checkpoint_dir": str(tmp_path / "backup"),
    }
    with open_channel(max_file_size=1500, **directories) as channel:
        for i in range(6):
            put(channel, b"%d" % i * 100)
        channel.checkpoint()
    assert all(any((tmp_path / d).iterdir()) for d in ("disk1", "disk2", "checkpoints", "backup"))
    with open_channel() as channel:
        assert len(peek(channel)) == 6
    with open_channel(**directories):
        pass
    with pytest.raises(OptionError, match="checkpoint_dir is fixed when a channel is created"):
        open_channel(checkpoint_dir=str(tmp_path / "other"))


def test_a_data_directory_of_another_channel_is_refused(tmp_path: Path) -> None:
    with Channel(tmp_path / "one", data_dirs=[str(tmp_path / "data")], minimum_required_space=0) as one:
        put(one, b"x")
        with pytest.raises(ForeignDirectoryError, match=f"is data-0 of the channel {one.uuid} at {tmp_path}/one"):
            Channel(tmp_path / "two", data_dirs=[str(tmp_path / "data")])
        assert peek(one) == [b"x"]


def test_what_is_in_the_channel_is_read_without_taking_it(open_channel: Open) -> None:
    kept = open_channel(retention_ms=3_600_000)
    put(kept, *numbered(0, 10))
    kept.port().create_group("g", "8")
    batches = list(kept.read(2, 4))
    assert [row["write_order_id"] for b in batches for row in b.to_pylist()] == [2, 3, 4]
    assert sum(b.num_rows for b in kept.read(group="g")) == 3
    assert kept.stats().groups["g"].lag == 3


@pytest.mark.parametrize("readonly", [False, True])
def test_an_open_that_replays_tells_how_far_it_is_and_can_be_ended(path: Path, readonly: bool) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        put(channel, *numbered(0, 100))
    told: list[Progress] = []
    with Channel(path, create=False, readonly=readonly, checkpoint_on_close=False, progress=told.append):
        assert {(p.what, p.unit) for p in told} == {("open", "bytes")}
        assert told[0].done == 0 and told[-1].done > 1000 and told[-1].fraction == 1.0

    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Channel(path, create=False, readonly=readonly, progress=stop)
    with Channel(path, create=False, readonly=readonly) as channel:
        assert channel.stats().channel_size == 100


def test_a_channel_cannot_be_pickled_and_says_what_to_send_instead(open_channel: Open) -> None:
    channel = open_channel()
    with pytest.raises(TypeError, match=r"send its path, .* and open it there"):
        pickle.dumps(channel)


def test_completion_and_the_reference_show_what_users_call(open_channel: Open) -> None:
    channel = open_channel()
    hidden = {name for name in set(dir(Channel)) - set(dir(channel)) if not name.startswith("__")}
    page = Path(__file__).parents[2] / "docs" / "reference" / "channel.md"
    (unlisted,) = re.findall(r'"!\^\((.*)\)\$"', page.read_text())
    assert hidden == {*unlisted.split("|")} and {"engine", "park"} < hidden
    assert {"put_transaction", "take_transaction", "worker", "path", "stats"} <= set(dir(channel))


def test_a_handle_that_is_forgotten_says_so_once_it_is_gone_and_one_that_was_closed_or_parked_does_not(
    path: Path, tmp_path: Path
) -> None:
    channel = Channel(path, minimum_required_space=0)
    with pytest.warns(ResourceWarning, match=r"the channel /.* was forgotten, but not closed"):
        del channel
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(NotAChannelError):
            Channel(tmp_path / "missing", create=False)
        with Channel(path) as channel:
            put(channel, b"1")
        parked = Channel(path)
        parked.park()  # as those that Spark's process keeps until it ends
        del channel, parked
        gc.collect()
    assert [str(warning.message) for warning in said] == []


@pytest.mark.parametrize("place", ["{}/channel", "object+file://{}/channel"])
def test_all_that_is_written_has_a_time_though_the_clock_is_before_1970(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As that of a board without a battery may be: what asked for a time raised a struct.error."""
    now_seconds = -3600.0
    monkeypatch.setattr(time, "time", lambda: now_seconds)
    monkeypatch.setattr(time, "time_ns", lambda: round(now_seconds * 1e9))
    path = place.format(tmp_path)
    with Channel(path) as channel:
        channel.consumer("default")
        with channel.put_transaction() as tx:
            tx.put(Event(b"now"))
            with pytest.raises(OptionError, match=r"the clock of this host is before 1970: set it.* Nothing was put"):
                tx.put(Event(b"late"), deliver_after=60)
            tx.put(Event(b"late"), deliver_after=3601)
        channel.checkpoint()
        assert peek(channel) == [b"now"]
    now_seconds = 2.0
    with Channel(path) as channel:
        assert take(channel) + take(channel) == [b"now", b"late"]
    assert verify(path).healthy
