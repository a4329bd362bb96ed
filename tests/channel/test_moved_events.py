"""Events that a flush moved to disk after later ones, and memory tiers whose creator died."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.log.rolling import Rolling
from tests.support.events import ids, numbered, put, take

Open = Callable[..., Channel]

SMALL = {"memory_capacity": 3, "byte_capacity": 1 << 20, "overflow_timeout": 0.0}


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2, 4), (4, 2, 4, 1, 4), (1, 4, 1, 4, 1)])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_what_a_flush_wrote_after_later_events_is_taken_before_them(
    open_channel: Open, sizes: tuple[int, ...], limit: int
) -> None:
    channel = open_channel(**SMALL)
    for size in sizes:  # four do not fit into memory
        put(channel, *numbered(channel.stats().last_id, size))
    channel.flush()
    bodies: list[bytes] = []
    while found := take(channel, limit):
        bodies += found
    assert bodies == numbered(0, sum(sizes))


def test_a_handle_that_follows_late_sees_moved_events_once(open_channel: Open) -> None:
    mover, late = open_channel(**SMALL), open_channel(**SMALL)
    put(mover, *numbered(0, 3))
    mover.flush()
    for channel in (mover, late, open_channel()):
        stats = channel.stats()
        assert (stats.drain_order, stats.memory.events, stats.disk.events) == ([-3], 0, 3)
    put(late, *numbered(3, 3))
    assert late.stats().drain_order == [-3, 3]
    assert ids(late) == [1, 2, 3, 4, 5, 6]


def die(*_: object) -> None:
    os._exit(9)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(MemoryDirectory, "create"), (Rolling, "begin"), (MemoryDirectory, "remove")],
    ids=["before its directory is created", "before its first file is created", "before its directory is removed"],
)
def test_a_memory_tier_whose_process_died_is_removed_by_the_last_close(
    path: Path, open_channel: Open, kind: type, name: str
) -> None:
    with open_channel(**SMALL) as channel:
        uuid = channel.uuid
    if (child := os.fork()) == 0:
        setattr(kind, name, die)
        channel = Channel(path, create=False)
        put(channel, b"1")
        take(channel)
        channel.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with open_channel() as channel:
        last_id = channel.stats().last_id
    assert not (path / "memory").is_symlink()
    assert list(Path("/dev/shm").glob(f"spillable-{uuid}-*")) == []
    (path / "head").unlink()  # as after a reboot
    with open_channel() as channel:
        stats = channel.stats()
        assert (stats.last_id, stats.lost, stats.doubtful) == (last_id, (), ())


def test_a_handle_whose_memory_files_are_used_again_while_it_follows_reads_the_state_anew(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover, late = open_channel(**SMALL), open_channel(**SMALL)
    put(mover, b"0")
    assert late.stats().drain_order == [1]
    put(mover, b"1")
    real, moves = late.engine().log.tiers.records, iter(range(3))

    def overtaken(*positions: Any) -> Any:
        for i in moves:
            take(mover)
            mover.checkpoint()  # begins a new file of the memory tier
            put(mover, b"%d" % (i + 2))
        return real(*positions)

    monkeypatch.setattr(late.engine().log.tiers, "records", overtaken)
    assert late.stats().drain_order == [1]
    assert take(mover) == [b"4"]
    assert late.stats().drain_order == []


def test_a_handle_whose_listing_misses_a_file_that_is_renamed_meanwhile_reads_the_state_anew(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover, late = open_channel(**SMALL), open_channel(**SMALL)
    put(mover, b"0")
    assert late.stats().drain_order == [1]
    mover.checkpoint()  # begins a new file of the memory tier
    put(mover, b"1")
    file_system = late.engine().fs
    real = file_system.list
    listings: Iterator[list[str]] = iter([[]])
    monkeypatch.setattr(file_system, "list", lambda directory: next(listings, real(directory)))
    assert late.stats().drain_order == [2]
