"""Which staged segments are abandoned, and that nothing else is removed."""

from __future__ import annotations

import os
import time

import pytest

from spillable_stream.format.batch import encode_batch
from spillable_stream.log import abandoned_segments, staged_file
from spillable_stream.log.abandoned_segments import remove_abandoned_segments
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter, uptime_seconds
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.lock import FileLock
from tests.support.fake_files import FaultyFileSystem
from tests.support.one_module import replace_in
from tests.support.segments import numbers


def left(
    fs: FaultyFileSystem, layout: Layout, live: set[str], committed: dict[str, int], ttl_seconds: float, owner: str = ""
) -> int:
    """Remove what is abandoned and return how many segments are left."""
    remove_abandoned_segments(fs, layout, live, committed, ttl_seconds, owner)
    return len(layout.segments(fs))


def test_a_local_segment_is_abandoned_when_its_writer_is_gone(fs: FaultyFileSystem, layout: Layout) -> None:
    writer = StagedFileWriter(fs, layout)
    assert left(fs, layout, set(), {}, 0) == 1
    writer.close()
    assert left(fs, layout, {writer.name}, {}, 0) == 1
    assert left(fs, layout, set(), {}, 1e9, owner="another") == 1
    assert left(fs, layout, set(), {}, 1e9) == 0


def test_a_querys_segment_is_abandoned_when_its_batch_is_over_or_its_time(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def staged() -> StagedFileWriter:
        writer = StagedFileWriter(fs, layout, "query", 3)
        writer.close()
        return writer

    writer = staged()
    assert left(fs, layout, set(), {"query": 2}, 3600) == 1
    assert left(fs, layout, {writer.name}, {"query": 3}, 3600) == 1
    assert left(fs, layout, set(), {"query": 3}, 3600) == 0
    staged()
    later = uptime_seconds() + 4000
    monkeypatch.setattr(abandoned_segments, "uptime_seconds", lambda: later)
    assert left(fs, layout, set(), {}, 5000) == 1
    assert left(fs, layout, set(), {}, 3600) == 0


@pytest.mark.parametrize("jump_seconds", [86_400, -86_400])
def test_a_clock_that_jumps_expires_no_staging(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch, jump_seconds: float
) -> None:
    """What a live query staged is adopted when all its tasks are done; the wall clock says nothing about that."""
    writer = StagedFileWriter(fs, layout, "query", 3)
    writer.close()
    now = time.time()
    replace_in(monkeypatch, abandoned_segments, "time", time=lambda: now + jump_seconds)
    assert left(fs, layout, set(), {}, 3600) == 1
    os.utime(writer.path, (now - jump_seconds, now - jump_seconds))
    assert left(fs, layout, set(), {}, 3600) == 1


@pytest.mark.parametrize("how", ["earlier boot", "earlier version", "nonsense", "torn header"])
def test_staging_that_no_live_query_can_have_expires_by_its_file_time(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "earlier version":
        monkeypatch.setattr(staged_file, "_age", lambda: {})
    elif how == "nonsense":
        monkeypatch.setattr(staged_file, "_age", lambda: {"boot": boot_id().hex(), "up": "yesterday"})
    writer = StagedFileWriter(fs, layout, "query", 3)
    writer.close()
    monkeypatch.undo()
    if how == "torn header":
        os.truncate(writer.path, 60)
    elif how == "earlier boot":
        monkeypatch.setattr(abandoned_segments, "boot_id", lambda: bytes(16))
    assert left(fs, layout, set(), {}, 3600) == 1
    old = time.time() - 4000
    os.utime(writer.path, (old, old))
    assert left(fs, layout, set(), {}, 3600) == 0


def test_a_segment_removed_before_its_writer_could_lock_it_is_created_again(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint between the making of the file and its lock: what is then written must not be lost."""
    real, times = FileLock.try_acquire, [0]

    def try_acquire(lock: FileLock, *, shared: bool = False) -> bool:
        times[0] += 1
        if times[0] == 1:  # the writer's first
            remove_abandoned_segments(fs, layout, set(), {}, 0)
        return real(lock, shared=shared)

    monkeypatch.setattr(FileLock, "try_acquire", try_acquire)
    writer = StagedFileWriter(fs, layout)
    assert times[0] == 3  # the writer's, the checkpoint's, the writer's again
    writer.write(encode_batch(numbers(0, 3)))
    assert writer.finish().end == writer.path.stat().st_size
    assert len(layout.segments(fs)) == 1
    writer.discard()
