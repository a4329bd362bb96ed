"""Whoever comes first recovers from the log; whoever finds others believes the head."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel, ChannelClosedError, CommitOutcomeUnknownError, CorruptionError
from spillable_stream.engine.local import opening
from spillable_stream.engine.local.held_channel import HeldChannel
from spillable_stream.spark import channel_pool
from spillable_stream.spark.channel_pool import visit
from tests.support.damage import kill
from tests.support.events import ids, numbered, peek, put

Open = Callable[..., Channel]


@pytest.fixture
def recoveries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count recoveries."""
    found: list[int] = []
    real = opening.recover_channel

    def recover_channel(held: HeldChannel, timeout_seconds: float) -> None:
        found.append(1)
        real(held, timeout_seconds)

    monkeypatch.setattr(opening, "recover_channel", recover_channel)
    yield found


def head_of(path: Path) -> bytes:
    return (path / "head").read_bytes()


# ── coming first ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_whoever_comes_first_finds_everything_however_old_the_head_is(
    path: Path, open_channel: Open, closed: bool
) -> None:
    """As after a file system was mounted again, with the same boot ID."""
    channel = open_channel(max_file_size=2000)
    put(channel, *numbered(0, 5))
    old = head_of(path)
    for start in range(5, 50, 5):
        put(channel, *[b"%d" % i * 100 for i in range(start, start + 5)])
    assert len(list((path / "data").glob("log-*"))) > 3
    if closed:
        channel.close()
    else:
        kill(channel)
    (path / "head").write_bytes(old)
    again = open_channel()
    assert list(ids(again)) == list(range(1, 51))
    assert put(again, b"next") == (51, 51)


def test_an_append_that_is_whole_and_was_never_published_counts_for_whoever_comes_first(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel()
    put(channel, b"a")
    before = head_of(path)
    put(channel, b"b")
    kill(channel)
    (path / "head").write_bytes(before)
    assert peek(open_channel()) == [b"a", b"b"]


def test_handles_that_find_others_do_not_recover(open_channel: Open, recoveries: list[int]) -> None:
    handles = [open_channel() for _ in range(5)]
    assert len(recoveries) == 1
    assert [h.engine().log.recovered for h in handles] == [True, False, False, False, False]
    for handle in handles:
        handle.close()
    open_channel()
    assert len(recoveries) == 2


def test_a_thousand_visits_of_a_sink_recover_once_per_idle_gap(
    path: Path, open_channel: Open, recoveries: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_pool, "_parked", {})
    for _ in range(1000):
        with visit(str(path), minimum_required_space=0) as channel:
            assert channel.uuid
    assert len(recoveries) == 1
    channel_pool._parked.popitem()[1].close(checkpoint=False, flush=False)  # the worker was idle, and ended
    for _ in range(10):
        with visit(str(path), minimum_required_space=0):
            pass
    assert len(recoveries) == 2
    channel_pool._parked.popitem()[1].close(checkpoint=False, flush=False)


def test_a_parked_handle_keeps_the_head_and_holds_back_neither_flush_nor_repair(
    path: Path, open_channel: Open, recoveries: list[int]
) -> None:
    parked, other = open_channel(memory_capacity=100), open_channel()
    put(other, b"a")
    parked.park()
    other.close()
    assert not (path / "memory").exists(), "the last that was not parked moved memory to disk"
    third = open_channel()
    assert (peek(third), len(recoveries)) == ([b"a"], 1)
    parked.close(checkpoint=False, flush=False)


# ── the head while it counts ────────────────────────────────────────────────────────────────────


def test_a_head_that_goes_backwards_under_a_handle_is_refused_and_nothing_is_overwritten(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel()
    put(channel, b"a")
    old = head_of(path)
    put(channel, b"b")
    put(channel, b"c")
    with (path / "head").open("r+b") as file:
        file.write(old)
    for use in (lambda: put(channel, b"d"), channel.stats):
        with pytest.raises(CorruptionError, match="the head went back from publication"):
            use()
    kill(channel)
    assert peek(open_channel()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("memory_capacity", [0, 100], ids=["disk", "memory"])
def test_a_publication_that_fails_leaves_the_outcome_to_the_next_open(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch, memory_capacity: int
) -> None:
    channel = open_channel(memory_capacity=memory_capacity)
    put(channel, b"a")
    real = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if len(data) == 88:
            raise OSError(5, "Input/output error")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(CommitOutcomeUnknownError, match="Whether the transaction counts shows when the channel is"):
        put(channel, b"b")
    monkeypatch.undo()
    with pytest.raises(ChannelClosedError, match="must be opened again"):
        put(channel, b"c")
    kill(channel)
    assert peek(open_channel()) == [b"a", b"b"]
