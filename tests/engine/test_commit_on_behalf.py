"""Looking for the owner of a group, and committing its takes for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import spillable_stream as ss
import spillable_stream.spark
from spillable_stream import Channel
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.storage.lock import FileLock
from tests.support.events import numbered, put

Open = Callable[..., Channel]


def test_who_looks_for_a_groups_owner_makes_nobody_wait_for_it(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_channel(), open_channel()
    real = FileLock.release

    def look_in_the_middle_of_which_another_starts(lock: FileLock) -> None:
        monkeypatch.undo()
        starter = threading.Thread(target=lambda: owned.append(second.consumer("g", owner_timeout_seconds=0)))
        starter.start()
        starter.join(0.1)
        real(lock)
        starter.join()

    owned: list[Any] = []
    monkeypatch.setattr(FileLock, "release", look_in_the_middle_of_which_another_starts)
    assert first.engine().owners.wait_for_owner_to_go("g", "nobody", 0)
    assert owned


def group_state(channel: ss.Channel, group: str = "default") -> tuple[int, int]:
    """Return a group's position and how many events are in its prepared takes."""
    stats = channel.stats().groups[group]
    return stats.position, stats.in_flight


def test_takes_that_end_later_are_left_alone(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 30))
    consumer = channel.consumer("g")
    for first in (1, 11, 21):
        consumer.prepare([(first, first + 9)])
    assert finish_takes(channel.engine(), "g", 25) == 2
    assert group_state(channel, "g") == (20, 10)


def test_takes_of_another_group_are_left_alone(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    for group in ("a", "b"):
        channel.consumer(group).prepare([(1, 5)])
    assert finish_takes(channel.engine(), "a", 5) == 1
    assert (group_state(channel, "a"), group_state(channel, "b")) == ((5, 0), (0, 5))


def test_a_take_that_spans_both_tiers_is_finished(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=5, overflow_timeout=0)
    put(channel, *numbered(0, 5))
    put(channel, *numbered(5, 5))
    consumer = channel.consumer("g")
    consumer.prepare([(1, 5)])
    consumer.prepare([(6, 10)])
    assert channel.stats().drain_order == [5, -5]
    assert finish_takes(channel.engine(), "g", 10) == 2
    assert channel.stats().channel_size == 0


def test_an_owner_that_resumes_waits_for_whoever_finishes_takes(open_channel: Open) -> None:
    channel, other = open_channel(lock_timeout=0.01), open_channel()
    put(channel, *numbered(0, 10))
    channel.consumer("g").prepare([(1, 10)])
    channel._open.owned.consumers.pop("g").close()
    with channel.engine().committing(), pytest.raises(ss.LockTimeoutError):
        other.consumer("g", resume=True)
    assert list(other.consumer("g", resume=True).prepared().values()) == [[(1, 10)]]


def test_no_two_owners_are_the_same(open_channel: Open) -> None:
    first, second = open_channel(), open_channel()
    owner = first.consumer("g").owner
    assert second.engine().owners.owner_of("g") == owner
    first.close()
    assert second.engine().owners.owner_of("g") == owner
    assert second.consumer("g").owner != owner
    assert second.engine().owners.owner_of("g") == second.consumer("g").owner
    assert second.engine().owners.owner_of("unknown") == ""
