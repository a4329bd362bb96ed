"""Changes of many groups in one transaction, and what a dropped group leaves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.engine.group_changes import GroupChanges, drop_of, remove_files_of
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


def test_its_files_are_removed(open_channel: Open, path: Path) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 5))
    channel.consumer("g").commit([(1, 3)])
    give_up(channel, "g")
    engine = channel.engine()
    engine.layout.group_query("g").touch()
    assert len(os.listdir(path / "groups")) == 3
    remove_files_of(engine.fs, engine.layout, "g")
    assert os.listdir(path / "groups") == []
    remove_files_of(engine.fs, engine.layout, "g")


def test_files_that_cannot_be_removed_stay(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel()
    channel.consumer("g")
    give_up(channel, "g")
    engine = channel.engine()

    def refuse(path: Path) -> None:
        raise StorageError(f"removing {path}: read-only file system")

    with monkeypatch.context() as broken:
        broken.setattr(engine.fs, "remove", refuse)
        remove_files_of(engine.fs, engine.layout, "g")
    assert engine.layout.group_lock("g").exists()


def test_a_consumer_that_waits_for_a_group_whose_lock_file_goes_makes_both_anew(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    channel.consumer("g").commit([(1, 3)])
    give_up(channel, "g")
    engine = channel.engine()
    fs, open_file = engine.fs, engine.fs.open

    def drop_after_it_is_opened(path: Path, **how: bool) -> object:
        monkeypatch.undo()
        file = open_file(path, **how)
        engine.commit(GroupChanges([{"group": "g", "drop": True}]))
        remove_files_of(fs, engine.layout, "g")
        return file

    monkeypatch.setattr(fs, "open", drop_after_it_is_opened)
    consumer = channel.consumer("g")
    assert consumer.position() == 3  # where the channel begins
    assert engine.layout.group_lock("g").read_text() == consumer.owner
    consumer.commit([(4, 5)])
