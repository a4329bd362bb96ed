"""The parts put together: failing storage, checkpoints, space and the end, as one process and its threads see them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    ChannelBusyError,
    ChannelClosedError,
    CommitOutcomeUnknownError,
    StorageError,
)
from spillable_stream.log.identity_file import read_identity
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import Call, FaultyFileSystem
from tests.support.threads import in_threads

Open = Callable[..., Channel]


def test_an_unknown_outcome_closes_the_handle_and_the_next_open_settles_it(path: Path, open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    put(channel, b"kept")
    with fs.failing(lambda c: c.name == "sync"), pytest.raises(CommitOutcomeUnknownError, match="opened again"):
        put(channel, b"in doubt")
    for use in (lambda: put(channel, b"x"), lambda: peek(channel), channel.stats):
        with pytest.raises(ChannelClosedError, match="must be opened again"):
            use()
    channel.close()
    again = open_channel()
    assert peek(again) == [b"kept", b"in doubt"], "it is whole, and the recovery wrote and synced it anew"
    put(again, b"next")
    assert peek(again) == [b"kept", b"in doubt", b"next"]
    assert len(list((path / "data").glob("log-*"))) == 2, "a file whose sync failed is not written to again"


# ── every storage call may fail ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_whichever_storage_call_fails_acknowledged_events_stay_and_others_do_not_come(
    tmp_path: Path, step: int
) -> None:
    """A workload that rolls, stages, takes and checkpoints, with its n-th storage call failing, for every n."""

    def workload(channel: Channel, stored: list[bytes], taken: list[bytes]) -> int:
        failed = 0
        for i in range(6):
            bodies = [b"%d" % i * (300 if i % 3 else 900)] * 3
            try:
                put(channel, *bodies)
                stored += bodies
            except StorageError:
                failed += 1
            if i % 2:
                try:
                    taken += take(channel, 2)
                except StorageError:
                    failed += 1
            if i == 3:
                try:
                    channel.checkpoint()
                except StorageError:
                    failed += 1
        return failed

    number, unharmed = 1 - step, False
    while not unharmed:
        number += step
        fs, stored, taken = FaultyFileSystem(), list[bytes](), list[bytes]()
        path = tmp_path / str(number)
        options: dict[str, Any] = {"max_file_size": 2500, "max_inline_bytes": 2000, "minimum_required_space": 0}
        channel = Channel(path, checkpoint_on_close=False, **options)
        channel.close()
        channel = Channel(path, create=False, fs=fs)
        made = [0]

        def chosen(call: Call, made: list[int] = made, number: int = number) -> bool:
            if call.name in ("load", "store"):  # of what is published: whether others saw it is not known
                return False
            made[0] += 1
            return made[0] == number

        with fs.failing(chosen):
            workload(channel, stored, taken)
            unharmed = made[0] < number
        try:
            rest = take(channel)
        except ChannelClosedError:  # the outcome of a sync was unknown
            channel.close()
            channel = Channel(path, create=False)
            rest = take(channel)
        assert taken + rest == stored, f"call {number} failed"
        channel.close()
        (path / "head").unlink()
        with Channel(path, create=False) as again:
            assert peek(again) == [], f"call {number} failed"
    assert number > 100


# ── space ───────────────────────────────────────────────────────────────────────────────────────


def test_a_full_drain_returns_the_disk_to_a_few_files(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_file_size=20_000, max_inline_bytes=50_000)
    for i in range(60):
        put(channel, *[bytes(1000)] * (5 if i % 6 else 80))
    assert channel.stats().data_files > 15 and channel.stats().segments == 10
    take(channel, 10_000)
    channel.checkpoint()
    channel.checkpoint()
    put(channel, b"x")
    take(channel)
    channel.checkpoint()
    assert channel.stats().data_files <= 3 and channel.stats().segments == 0
    assert sum(f.stat().st_size for f in (path / "data").iterdir()) < 100_000


def test_files_stay_until_the_slowest_group_has_taken_them(open_channel: Open) -> None:
    channel = open_channel(max_file_size=1500)
    put(channel, b"0")
    peek(channel, group="slow")
    for i in range(1, 20):
        put(channel, b"%d" % i)
        take(channel, group="fast")
        channel.checkpoint()
    assert take(channel, group="slow") == numbered(0, 20)


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


def test_a_channel_that_another_host_has_open_is_refused(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host shares the lock but not the boot ID."""
    from spillable_stream.engine.local.local_engine import LocalEngine
    from spillable_stream.log import head

    open_channel()
    monkeypatch.setattr(head, "boot_id", lambda: bytes(16))
    with pytest.raises(ChannelBusyError, match="somebody damaged, removed or replaced its head"):
        LocalEngine(FileSystem(), read_identity(FileSystem(), path), lock_timeout_seconds=0.05)


def test_handles_that_create_checkpoints_at_once_harm_none(path: Path, open_channel: Open) -> None:
    handles = [open_channel(max_file_size=1500) for _ in range(4)]

    def work(i: int) -> None:
        for _ in range(10):
            put(handles[i], b"%d" % i)
            handles[i].checkpoint()

    assert in_threads(4, work) == [None] * 4
    assert len(peek(handles[0])) == 40
    assert [f.name for f in (path / "checkpoint").iterdir() if f.suffix == ".tmp"] == []


# ── what a review found ─────────────────────────────────────────────────────────────────────────


def test_a_data_file_stays_while_it_holds_the_commit_of_a_live_segment(path: Path, open_channel: Open) -> None:
    """The log alone must do, checkpoints or not."""
    channel = open_channel(max_file_size=1500, max_inline_bytes=3000)
    put(channel, *[b"0"] * 5)
    put(channel, *[bytes(1000)] * 5)  # a segment
    take(channel, 5)
    for i in range(10):
        put(channel, b"%d" % i)
        channel.checkpoint()
    channel.close()
    shutil.rmtree(path / "checkpoint")
    (path / "head").unlink()
    assert peek(open_channel()) == [bytes(1000)] * 5 + numbered(0, 10)


def test_a_missing_checkpoint_directory_fails_no_commit(
    path: Path, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(checkpoint_interval=1)
    shutil.rmtree(path / "checkpoint")
    time.sleep(1.1)  # the head keeps whole seconds
    put(channel, b"x")
    assert "no checkpoint was created" in caplog.text
    assert peek(channel) == [b"x"]
    with pytest.raises(ChannelClosedError, match=r"checkpoint was moved, removed or replaced"):
        channel.checkpoint()


def test_a_commit_does_not_wait_for_a_checkpoint_that_another_makes(open_channel: Open) -> None:
    channel = open_channel(checkpoint_interval=1, lock_timeout=3600)  # so a wait would not end
    other = FileLock.open(FileSystem(), channel.engine().layout.checkpoint_lock)
    assert other.try_acquire()
    time.sleep(1.1)
    put(channel, b"x")
    other.close()


def test_close_waits_for_the_commit_under_way(open_channel: Open) -> None:
    """What a commit stored is not reported as failed, and what close refused says so."""
    for _ in range(10):
        channel = open_channel()
        acknowledged: list[int] = []

        def work(i: int, channel: Channel = channel, acknowledged: list[int] = acknowledged) -> None:
            while True:
                acknowledged.append(put(channel, b"%d" % i)[0])

        def close(channel: Channel = channel, acknowledged: list[int] = acknowledged) -> None:
            while len(acknowledged) < 10:
                time.sleep(0.001)
            channel.close()

        closer = threading.Thread(target=close)
        closer.start()
        raised = in_threads(4, work)
        closer.join()
        assert [type(e) for e in raised] == [ChannelClosedError] * 4
        again = open_channel()
        assert again.stats().last_id == max(acknowledged)
        again.close()
