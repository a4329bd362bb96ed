"""What a holder of the lock that died left behind the published end is cut by the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, CorruptionError, StorageError
from spillable_stream.format.head_page import HeadState
from spillable_stream.log.layout import Layout
from spillable_stream.log.wal import WriteAheadLog
from tests.support.damage import log_file
from tests.support.events import peek, put
from tests.support.fake_files import FaultyFileSystem
from tests.support.logs import STATE, append, contents

Open = Callable[..., Channel]


@pytest.mark.parametrize("said", ["by a mark", "by the end's state"])
def test_what_a_dead_holder_left_is_cut_by_the_next_commit(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog], layout: Layout, said: str
) -> None:
    append(wal, b"kept")
    head = wal.published()
    with wal.lock.locked(1):
        if said == "by a mark":
            wal.lock.head.mark()
        else:
            wal.publish(head._replace(state=HeadState.APPENDING))
    with layout.log_file(1).open("r+b") as file:
        file.seek(head.end)
        file.write(b"half a frame of a process that was killed" * 10)
    append(open_log(), b"next one")
    assert contents(wal) == [(1, 4), (1, 8)]
    assert b"killed" not in layout.log_file(1).read_bytes()


def test_a_file_that_a_dead_holder_did_not_publish_is_removed(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog], layout: Layout
) -> None:
    append(wal, b"kept")
    with wal.lock.locked(1):
        wal.publish(wal.published()._replace(state=HeadState.APPENDING))
    layout.log_file(2).write_bytes(b"half a header")
    append(open_log(), b"next one")
    assert contents(wal) == [(1, 4), (1, 8)]
    assert not layout.log_file(2).exists()


def test_a_removed_file_is_removed_for_good_before_the_log_continues(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog], layout: Layout, fs: FaultyFileSystem
) -> None:
    """Else a power cut brings it back, and its header ends the file before it too early."""
    append(wal, b"kept")
    with wal.lock.locked(1):
        wal.publish(wal.published()._replace(state=HeadState.APPENDING))
    layout.log_file(2).write_bytes(b"not published")
    fs.calls.clear()
    append(open_log(), b"next one")
    names = [c.name for c in fs.calls if c.name in ("remove", "sync_directory", "write")]
    assert names == ["remove", "sync_directory", "write"]


def test_a_new_handle_does_not_cut_what_an_older_head_hides(path: Path, open_channel: Open) -> None:
    """Others hold the channel, so the new handle believes the head; its mark says that an append was under way."""
    holder = open_channel()
    put(holder, b"a")
    published = holder.engine().log.lock.current()
    put(holder, b"b")
    put(holder, b"c")
    victim = open_channel()
    lock = victim.engine().log.lock
    lock._held = published._replace(disk=published.disk._replace(state=HeadState.APPENDING))
    with pytest.raises(CorruptionError, match="the head is older than the log"):
        victim.engine().log.tiers.disk.heal(victim.engine().state.small)
    lock._held = None
    assert peek(holder) == [b"a", b"b", b"c"]


def test_a_file_that_holds_a_commit_is_not_removed_because_of_the_head(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_file_size=1000)
    put(channel, b"a" * 600)
    published = channel.engine().log.lock.current()
    put(channel, b"b" * 600)
    assert log_file(path, 2).exists()
    lock = channel.engine().log.lock
    lock._held = published._replace(disk=published.disk._replace(state=HeadState.APPENDING))
    with pytest.raises(CorruptionError, match="the head is older than the log"):
        channel.engine().log.tiers.disk.heal(channel.engine().state.small)
    lock._held = None
    assert log_file(path, 2).exists()
    assert [body[:1] for body in peek(channel)] == [b"a", b"b"]


def test_a_clean_log_is_not_looked_at(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    append(wal, b"kept")
    with wal.lock.locked(1):
        fs.calls.clear()
        wal.heal(lambda: STATE)
    assert fs.calls == []


@pytest.mark.parametrize("refused", ["truncate", "open"])
def test_where_a_disk_got_read_only_the_log_continues_on_another_one(
    two_disks: WriteAheadLog, fs: FaultyFileSystem, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(two_disks, b"kept")
    end = two_disks.published().end
    with fs.failing(lambda call: call.file == "log-000001" and call.name in ("write", "truncate")):
        with pytest.raises(StorageError, match=r"write .*log-000001"):
            append(two_disks, b"not committed")
        assert two_disks.published().state == HeadState.APPENDING
        if refused == "open":
            open_file = FaultyFileSystem.open

            def read_only(self: FaultyFileSystem, path: Path, **how: Any) -> Any:
                if path.name == "log-000001" and not how.get("readonly"):
                    raise StorageError(f"opening {path} failed: Read-only file system")
                return open_file(self, path, **how)

            monkeypatch.setattr(FaultyFileSystem, "open", read_only)
        append(two_disks, b"next one")
    header = two_disks.read_file_header(2)
    assert header is not None and header.previous == (1, end)
    assert contents(two_disks) == [(1, 4), (2, 8)]


def test_where_the_only_disk_refuses_a_cut_nothing_is_appended(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    append(wal, b"kept")
    with fs.failing(lambda call: call.name in ("write", "truncate")):
        for call in ("write", "truncate"):
            with pytest.raises(StorageError, match=f"{call} .*log-000001"):
                append(wal, b"not committed")
    append(wal, b"next one")
    assert contents(wal) == [(1, 4), (1, 8)]
