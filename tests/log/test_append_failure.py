"""An append that failed is cut; to a file whose sync failed nobody appends again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.head_page import HeadState
from spillable_stream.log.append_failure import AppendFailure
from spillable_stream.log.layout import Layout
from spillable_stream.log.published_end import PublishedEnd
from spillable_stream.log.tier_files import DiskFiles
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.storage.file import File
from tests.support.events import put, take
from tests.support.fake_files import Call, FaultyFile, FaultyFileSystem, nth
from tests.support.interrupts import Interrupts
from tests.support.logs import append, contents

Open = Callable[..., Channel]


def test_a_write_that_fails_is_taken_back(wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout) -> None:
    append(wal, b"kept")
    end = wal.published().end
    with fs.failing(nth("write", 1)), pytest.raises(StorageError, match="made to fail"):
        append(wal, bytes(10_000))
    assert layout.log_file(1).stat().st_size == end
    append(wal, b"next one")
    assert contents(wal) == [(1, 4), (1, 8)]


def test_a_full_disk_is_told_as_one_only_when_nothing_is_left_of_the_append(
    wal: WriteAheadLog, fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hears of a full disk puts the same again, and a crash may yet make count what could not be cut."""

    def refuse(*_: object) -> int:
        raise DiskSpaceError("the disk is full")

    monkeypatch.setattr(FaultyFile, "write", refuse)
    with pytest.raises(DiskSpaceError):
        append(wal, b"refused")
    with (
        fs.failing(nth("truncate", 1)),
        pytest.raises(StorageError, match=r"the disk is full\. The written part could") as uncut,
    ):
        append(wal, b"in doubt")
    assert not isinstance(uncut.value, DiskSpaceError)


@pytest.mark.parametrize("also", ["truncate", "sync"])
def test_a_write_that_cannot_be_taken_back_is_cut_by_the_next_commit(
    wal: WriteAheadLog, fs: FaultyFileSystem, open_log: Callable[..., WriteAheadLog], also: str
) -> None:
    append(wal, b"kept")
    with fs.failing(lambda call: call.name in ("write", also)), pytest.raises(StorageError):
        append(wal, bytes(10_000))
    assert wal.published().state != HeadState.CLEAN
    append(open_log(), b"next one")
    assert [size for _, size in contents(wal)] == [4, 8]


def test_after_a_failed_sync_the_log_continues_in_a_new_file(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    append(wal, b"kept")
    end = wal.published().end
    with fs.failing(nth("sync", 1)), pytest.raises(StorageError, match="not committed; the log continues"):
        append(wal, b"lost")
    append(wal, b"next one")
    assert contents(wal) == [(1, 4), (2, 8)]
    header = wal.read_file_header(2)
    assert header is not None and header.previous == (1, end)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_sync_that_was_interrupted_is_distrusted_too(
    wal: WriteAheadLog,
    fs: FaultyFileSystem,
    layout: Layout,
    interrupt: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: File) -> None:
        raise interrupt

    policy = DiskFiles(fs, layout)
    end = PublishedEnd(wal.lock, Tier.DISK)
    with wal.lock.locked(1), contextlib.closing(fs.open(layout.log_file(1))) as file:
        monkeypatch.setattr(type(file), "sync", interrupted)
        with pytest.raises(interrupt):
            AppendFailure(end, policy).sync_or_distrust(file, end.current())
        assert end.current().state == HeadState.SYNC_FAILED


def test_a_cut_whose_sync_fails_leaves_the_file_to_nobody(
    wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    """The cut may not be on the disk: what was cut would come back behind the next append."""
    append(wal, b"kept")
    end = PublishedEnd(wal.lock, Tier.DISK)
    with wal.lock.locked(1), contextlib.closing(fs.open(layout.log_file(1))) as file:
        with fs.failing(nth("sync", 1)):
            AppendFailure(end, DiskFiles(fs, layout)).cut(file, end.current())
        assert end.current().state == HeadState.SYNC_FAILED
    assert "the log continues in a new file" in caplog.text
    append(wal, b"next one")
    assert contents(wal) == [(1, 4), (2, 8)]


@pytest.mark.parametrize("write_fails", [False, True])
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_anywhere_lets_nobody_append_to_a_file_whose_sync_failed(
    open_channel: Open, write_fails: bool, step: int
) -> None:
    """Ctrl-C between a sync that fails and its record in the head: the next sync of that file says that all is well."""
    fs = FaultyFileSystem()
    channel, other = open_channel(fs=fs), open_channel()
    put(other, b"other")
    taken: list[bytes] = []
    place, hit = 0, True
    while hit:
        place += step
        put(channel, b"warm")
        taken += take(other)
        other.checkpoint()  # or files gather, over which a roll loops
        before, failed = channel.engine().positions.disk.file_id, [False]
        chosen = nth("sync", 1, "log"), nth("write", 1 if write_fails else 0, "log")

        def fails(call: Call, chosen: Any = chosen, failed: list[bool] = failed) -> bool:
            if chosen[0](call):
                failed[0] = True
                return True
            return bool(chosen[1](call))

        def append() -> None:
            with contextlib.suppress(StorageError):
                put(channel, b"x")

        interrupts = Interrupts(
            place, "log/wal.py", "log/published_end.py", "log/append_failure.py", "log/written_file.py", "log/head.py"
        )
        with fs.failing(fails):
            interrupts.run(append)
        hit = interrupts.hit
        put(other, b"y")
        assert not failed[0] or other.engine().positions.disk.file_id > before, f"interrupted at place {place}"
    assert place > 30
    assert b"x" not in [*taken, *take(other)]
