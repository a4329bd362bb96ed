"""Changes of many groups in one transaction, and the takes that a dropped group leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine.group_changes import GroupChanges, drop_of
from spillable_stream.format.record import GroupRecord
from spillable_stream.integrity.verify import verify
from tests.support.damage import kill
from tests.support.events import numbered, peek, put
from tests.support.groups import give_up

Open = Callable[..., Channel]


def made(count: int) -> GroupChanges:
    """Return changes that make groups."""
    records: list[GroupRecord] = [{"group": f"g{i}", "position": 0} for i in range(count)]
    return GroupChanges(records)


def test_many_groups_change_in_one_commit(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    before = channel.stats().counters.disk_syncs
    channel.engine().commit(made(1000))
    assert channel.stats().counters.disk_syncs == before + 1
    assert len(channel.engine().state.groups) == 1000
    kill(channel)
    channel = open_channel()
    assert len(channel.engine().state.groups) == 1000
    assert peek(channel, group="g999") == numbered(0, 5)
    assert verify(channel.path).healthy


@pytest.mark.parametrize("memory", [0, 100])
def test_a_group_that_is_dropped_leaves_no_take_that_nobody_will_commit(open_channel: Open, memory: int) -> None:
    channel = open_channel(memory_capacity=memory)
    put(channel, *numbered(0, 5))
    channel.consumer("g").prepare([(1, 3)])
    other = channel.consumer("other").prepare([(1, 2)])
    give_up(channel, "g")
    with channel.engine().snapshot() as state:
        drop = drop_of("g", state)
    channel.engine().commit(drop)
    assert list(channel.engine().state.pending) == [other]
    kill(channel)
    channel = open_channel()
    assert list(channel.engine().state.pending) == [other]
    assert set(channel.engine().state.groups) == {"other"}
    assert channel.consumer("g", resume=True).prepared() == {}
    assert verify(channel.path).healthy
