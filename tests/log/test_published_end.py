"""How far the log of a tier may be trusted, for every handle."""

from __future__ import annotations

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState, TierEnd
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.layout import Layout
from spillable_stream.log.published_end import PublishedEnd
from spillable_stream.log.wal import WriteAheadLog
from tests.support.fake_files import FaultyFileSystem
from tests.support.logs import append

DISK, MEMORY = TierEnd(3, 500), TierEnd((2 << 32) + 1, 700, HeadState.APPENDING)


def test_each_tier_publishes_its_own_end_and_leaves_the_others(wal: WriteAheadLog) -> None:
    disk, memory = PublishedEnd(wal.lock, Tier.DISK), PublishedEnd(wal.lock, Tier.MEMORY)
    with wal.lock.locked(1):
        disk.publish(DISK)
        memory.publish(MEMORY)
        assert (disk.current(), memory.current()) == (DISK, MEMORY)
        disk.publish(NO_TIER)
    assert (disk.published(), memory.published()) == (NO_TIER, MEMORY)


def test_an_end_without_a_last_id_leaves_the_rest_of_the_head(wal: WriteAheadLog) -> None:
    end = PublishedEnd(wal.lock, Tier.DISK)
    with wal.lock.locked(1):
        end.publish(DISK, 41)
        before = wal.lock.current()
        end.publish(DISK._replace(end=600))
        assert wal.lock.current() == before._replace(disk=DISK._replace(end=600), last_id=41)


def test_another_handle_sees_the_end_at_once(wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout) -> None:
    lock = CommitLock(fs, layout)
    others = PublishedEnd(lock, Tier.DISK)
    append(wal, b"x")
    assert others.published() == wal.published()
    append(wal, b"y")
    assert others.current() == wal.published()
    lock.close()


def test_who_holds_the_lock_does_not_read_the_head_again(
    wal: WriteAheadLog, fs: FaultyFileSystem, layout: Layout
) -> None:
    end = PublishedEnd(wal.lock, Tier.DISK)
    with wal.lock.locked(1):
        before = end.current()
        layout.head.write_bytes(b"\xff" * layout.head.stat().st_size)
        assert end.current() == before
        with pytest.raises(CorruptionError, match="the head is damaged"):
            end.published()
        wal.lock.publish(CommitPoint(before))
