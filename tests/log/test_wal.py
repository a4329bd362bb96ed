from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream.errors import ChannelClosedError, CommitOutcomeUnknownError, StorageError
from spillable_stream.format.frame import Frame, FrameType, total_size
from spillable_stream.format.head_page import HeadState
from spillable_stream.log.wal import WriteAheadLog
from tests.support.fake_files import FaultyFileSystem
from tests.support.logs import STATE, append, contents


def test_what_is_appended_is_published_to_other_processes(
    wal: WriteAheadLog, open_log: Callable[..., WriteAheadLog]
) -> None:
    other = open_log()
    for size in (10, 0, 100_000):
        append(wal, bytes(size))
        assert contents(other)[-1] == (1, size)
    append(other, bytes(7))
    assert contents(wal) == [(1, 10), (1, 0), (1, 100_000), (1, 7)]


def test_an_append_is_synced_before_it_is_published(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    before = wal.published()
    with fs.failing(lambda call: call.name == "sync"), pytest.raises(StorageError):
        append(wal, b"x")
    assert (wal.published().file_id, wal.published().end) == (before.file_id, before.end)


def test_a_failed_sync_that_cannot_be_settled_closes_the_log(
    wal: WriteAheadLog, fs: FaultyFileSystem, open_log: Callable[..., WriteAheadLog]
) -> None:
    append(wal, b"kept")
    with fs.failing(lambda call: call.name == "sync"), pytest.raises(CommitOutcomeUnknownError, match="opened again"):
        append(wal, b"lost")
    with pytest.raises(ChannelClosedError, match="must be opened again"):
        append(wal, b"refused")
    assert wal.published().state == HeadState.SYNC_FAILED
    append(open_log(), b"next one")
    assert contents(wal) == [(1, 4), (2, 8)]  # a file whose sync failed is never appended to again


def test_many_small_frames_are_joined_into_few_writes(wal: WriteAheadLog, fs: FaultyFileSystem) -> None:
    frames = [Frame.of(FrameType.PUT, b"%d" % i, 1) for i in range(500)]
    entries = [(frame.header(i, i), frame.payload, None) for i, frame in enumerate(frames)]
    fs.calls.clear()
    with wal.lock.locked(1):
        at = wal.reserve(total_size(frames), lambda: STATE)
        wal.append(at, entries, 500, lambda: STATE)
    assert (fs.count("write"), fs.count("sync")) == (1, 1)
    assert len(contents(wal)) == 500
