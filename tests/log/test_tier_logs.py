"""The logs of both tiers, read as one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spillable_stream.format.file_names import Tier, memory_file_id
from spillable_stream.format.frame import Frame, FrameType, total_size
from spillable_stream.format.head_page import CommitPoint, TierEnd
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.layout import Layout
from spillable_stream.log.tier_logs import Positions, Tiers
from spillable_stream.log.wal import Position
from tests.support.fake_files import FaultyFileSystem
from tests.support.logs import STATE, begin


@pytest.fixture
def tiers(fs: FaultyFileSystem, layout: Layout) -> Iterator[Tiers]:
    """Both logs, with a file each."""
    layout.memory.mkdir()
    lock = CommitLock(fs, layout)
    tiers = Tiers(lock)
    begin(tiers.disk)
    tiers.memory.create_first_file(lambda: STATE, memory_file_id(1, 1))
    yield tiers
    tiers.close()
    lock.close()


def append(tiers: Tiers, tier: Tier, time_us: int) -> None:
    log = tiers.memory if tier is Tier.MEMORY else tiers.disk
    frame = Frame.of(FrameType.ROLLBACK, b"")
    with log.lock.locked(1):
        at = log.reserve(total_size([frame]), lambda: STATE)
        log.append(at, [(frame.header(1, 0, time_us), frame.payload, None)], 0, lambda: STATE)


def end_of(tiers: Tiers) -> Positions:
    return Positions.of(tiers.disk.lock.published())


def times(tiers: Tiers, start: Positions, end: Positions) -> list[int]:
    return [f.header.time_us for _, f in tiers.records(start, end)]


START = Positions(Position(1, 0), Position(memory_file_id(1, 1), 0))


def test_both_logs_are_read_in_the_order_of_the_appends_and_without_headers(tiers: Tiers) -> None:
    for time_us, tier in enumerate("dmmdmdd", 1):
        append(tiers, Tier.DISK if tier == "d" else Tier.MEMORY, time_us)
    assert times(tiers, START, end_of(tiers)) == [1, 2, 3, 4, 5, 6, 7]


def test_only_what_came_since_is_read(tiers: Tiers) -> None:
    append(tiers, Tier.DISK, 1)
    append(tiers, Tier.MEMORY, 2)
    since = end_of(tiers)
    append(tiers, Tier.MEMORY, 3)
    assert times(tiers, since, end_of(tiers)) == [3]
    append(tiers, Tier.DISK, 4)
    assert times(tiers, since, end_of(tiers)) == [3, 4]


def test_a_memory_tier_of_a_later_generation_is_read_from_its_first_file(tiers: Tiers) -> None:
    append(tiers, Tier.MEMORY, 1)
    before = end_of(tiers)
    with tiers.memory.lock.locked(1):
        tiers.memory.create_first_file(lambda: STATE, memory_file_id(2, 1))
    append(tiers, Tier.MEMORY, 2)
    append(tiers, Tier.DISK, 3)
    assert times(tiers, before, end_of(tiers)) == [2, 3]


def test_no_end_of_the_same_log_moves_back() -> None:
    def at(disk: int, memory: tuple[int, int] = (0, 0)) -> Positions:
        ends = TierEnd(1, disk), TierEnd(memory_file_id(memory[0], 1) if memory[0] else 0, memory[1])
        return Positions.of(CommitPoint(*ends))

    assert at(10).is_before(at(20))
    assert not at(20).is_before(at(20))
    assert not at(20).is_before(at(10))
    assert at(10, (1, 5)).is_before(at(10, (1, 6)))
    assert not at(10, (1, 6)).is_before(at(10, (1, 5)))
    assert not at(10, (1, 5)).is_before(at(10, (2, 1))), "of another generation it does not tell"
