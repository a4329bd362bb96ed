from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local import memory_capacity
from spillable_stream.engine.local.memory_capacity import file_size_bytes
from spillable_stream.errors import MemoryTierWarning
from spillable_stream.option_types import ChannelOptions
from spillable_stream.storage.filesystem import FileSystem
from tests.support.events import put, take

Open = Callable[..., Channel]


def test_shared_memory_that_is_missing_is_warned_of_and_events_go_to_disk(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, memory_dir=str(path.parent / "missing"))
    with pytest.warns(MemoryTierWarning, match=r"missing is missing; set memory_dir .*; events go to disk"):
        put(channel, b"x")
    assert channel.stats().drain_order == [-1]


def test_the_default_byte_capacity_follows_what_is_free_and_is_capped(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=10)
    for free, machine, expected in (
        (100 << 20, 1 << 40, 50 << 20),
        (1 << 40, 100 << 20, 25 << 20),
        (1 << 40, 1 << 40, 1 << 30),
        (1 << 20, 1 << 40, 0),
    ):
        monkeypatch.setattr(FileSystem, "free_bytes", lambda self, path, free=free: free)
        monkeypatch.setattr(memory_capacity, "machine_free_bytes", lambda machine=machine: machine)
        assert channel.stats().memory.byte_capacity == expected * 80 // 100
    with pytest.warns(MemoryTierWarning, match="has 1,048,576 bytes free|bytes free, but a memory tier takes"):
        put(channel, b"x")
    assert channel.stats().drain_order == [-1]


def test_a_byte_capacity_beyond_what_is_free_is_warned_of(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(memory_capacity=10, byte_capacity=1 << 40)
    monkeypatch.setattr(FileSystem, "free_bytes", lambda self, path: 50 << 20)
    with pytest.warns(MemoryTierWarning, match="had 52,428,800 bytes free: it takes those"):
        put(channel, b"x")
    assert channel.stats().drain_order == [1]


def test_a_warning_that_a_filter_raises_fails_one_put_and_leaves_the_tier_in_use(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=10, byte_capacity=1 << 40)
    monkeypatch.setattr(FileSystem, "free_bytes", lambda self, path: 50 << 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MemoryTierWarning):
            put(channel, b"refused")
        put(channel, b"next")
    assert channel.stats().drain_order == [1] and take(channel, 2) == [b"next"]


@pytest.mark.parametrize(
    ("byte_capacity", "events", "average", "expected"),
    [
        (1 << 30, 10_000, 500, 1 << 20),
        (1 << 30, 1_000_000, 100, 6_250_000),
        (1 << 30, 10**9, 500, 8 << 20),
        (1 << 20, 10**9, 500, 1 << 16),
    ],
)
def test_files_are_fine_enough_to_free_memory_in_steps(
    byte_capacity: int, events: int, average: int, expected: int
) -> None:
    options = ChannelOptions(memory_capacity=events, avg_event_size=average)
    assert file_size_bytes(byte_capacity, options) == expected
