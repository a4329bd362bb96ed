"""Automatic groups: how long they stay without an owner, and what goes with them. Time is given, none passes."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from spillable_stream import Channel, DiskSpaceError
from spillable_stream.channel import consumer
from spillable_stream.engine import automatic_groups
from spillable_stream.engine.automatic_groups import UNPLANNED_SECONDS
from spillable_stream.engine.group_owners import OwnerSeen
from spillable_stream.engine.groups import create_group
from spillable_stream.engine.local import local_owners
from spillable_stream.engine.local.local_owners import look_for_owner
from spillable_stream.engine.requests import Control
from spillable_stream.errors import ChannelClosedError, ChannelFullError, StorageError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import GroupRecord
from spillable_stream.integrity.verify import verify
from spillable_stream.log.layout import Layout
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.events import numbered, peek, put, take
from tests.support.groups import DAY_MS, HOUR_MS, LOOK_MS, give_up, look_after, make_automatic, names, pass_time

Open = Callable[..., Channel]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    """A channel with ten events that keeps a position for a day."""
    channel = open_channel(auto_group_ttl="1d")
    put(channel, *numbered(0, 10))
    return channel


# ── which groups go ─────────────────────────────────────────────────────────────────────────────


def test_a_group_goes_when_it_has_had_no_owner_for_its_time(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, DAY_MS - LOOK_MS)
    assert names(channel) == {"auto-a"}
    groups.look(LOOK_MS)
    assert names(channel) == set()


def test_a_group_with_an_owner_stays(channel: Channel) -> None:
    make_automatic(channel, "auto-a", owned=True)
    pass_time(look_after(channel), 10 * DAY_MS)
    assert names(channel) == {"auto-a"}
    assert channel.engine().state.groups["auto-a"].idle_ms == 0


def test_a_named_group_stays(channel: Channel) -> None:
    take(channel, 1, "named")
    give_up(channel, "named")
    pass_time(look_after(channel), 10 * DAY_MS)
    assert names(channel) == {"named"}


def test_the_time_begins_when_the_owner_is_gone(channel: Channel) -> None:
    make_automatic(channel, "auto-a", owned=True)
    groups = look_after(channel)
    pass_time(groups, DAY_MS)
    give_up(channel, "auto-a")
    pass_time(groups, DAY_MS - LOOK_MS)
    assert names(channel) == {"auto-a"}
    pass_time(groups, 2 * LOOK_MS)
    assert names(channel) == set()


def test_an_owner_lets_the_time_begin_anew(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, DAY_MS // 2)
    channel.consumer("auto-a")
    groups.look(LOOK_MS)
    assert channel.engine().follow().groups["auto-a"].idle_ms == 0
    give_up(channel, "auto-a")
    pass_time(groups, DAY_MS - LOOK_MS)
    assert names(channel) == {"auto-a"}


def test_an_owner_that_comes_and_goes_between_two_looks_is_noticed(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, DAY_MS // 2)
    channel.consumer("auto-a")
    give_up(channel, "auto-a")
    pass_time(groups, DAY_MS - LOOK_MS)
    assert names(channel) == {"auto-a"}


def test_an_owner_that_comes_and_goes_while_nobody_looks_is_noticed(channel: Channel) -> None:
    """So does a query that finds no events, if it ends within a second, and no other process has the channel open."""
    make_automatic(channel, "auto-a")
    pass_time(look_after(channel), DAY_MS // 2)
    channel.consumer("auto-a")
    give_up(channel, "auto-a")
    pass_time(look_after(channel), DAY_MS - LOOK_MS)  # another process, which knows what the log says
    assert names(channel) == {"auto-a"}


def test_an_owner_comes_though_the_disk_has_no_room_to_note_it(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    pass_time(look_after(channel), DAY_MS // 2)
    with mock.patch.object(consumer, "record_owner", side_effect=DiskSpaceError("full")):
        assert channel.consumer("auto-a").available()


def test_a_batch_that_is_planned_between_two_looks_is_noticed(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, DAY_MS // 2)
    assert channel.engine().state.groups["auto-a"].idle_ms > 0
    channel.consumer("auto-a").prepare([(2, 2)])
    assert channel.engine().state.groups["auto-a"].idle_ms == 0
    give_up(channel, "auto-a")
    pass_time(groups, DAY_MS - LOOK_MS)
    assert names(channel) == {"auto-a"}


def test_a_group_that_never_planned_a_batch_goes_soon(channel: Channel) -> None:
    make_automatic(channel, "auto-a", planned=0)
    make_automatic(channel, "auto-b")
    groups = look_after(channel)
    pass_time(groups, int(UNPLANNED_SECONDS * 1000) - 60_000)
    assert names(channel) == {"auto-a", "auto-b"}
    pass_time(groups, 60_000)
    assert names(channel) == {"auto-b"}


def test_a_group_that_never_planned_stays_while_it_has_an_owner(channel: Channel) -> None:
    make_automatic(channel, "auto-a", planned=0, owned=True)
    pass_time(look_after(channel), 10 * DAY_MS)
    assert names(channel) == {"auto-a"}


def test_a_shorter_time_holds_for_a_group_that_never_planned_too(open_channel: Open) -> None:
    channel = open_channel(auto_group_ttl=2)
    make_automatic(channel, "auto-a", planned=0)
    pass_time(look_after(channel), 2000)
    assert names(channel) == set()


def test_time_in_which_the_machine_slept_does_not_count(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    groups.look(0)
    groups.look(10 * DAY_MS)
    assert names(channel) == {"auto-a"}


def test_a_look_that_another_holder_shares_does_not_pass_for_an_owner(channel: Channel, path: Path) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    with_lock = FileLock.open(FileSystem(), channel.engine().layout.group_lock("auto-a"))
    assert with_lock.try_acquire(shared=True)
    pass_time(groups, DAY_MS - LOOK_MS)
    with_lock.close()
    groups.look(LOOK_MS)
    assert names(channel) == set()


def test_a_consumer_that_comes_during_a_look_is_not_refused(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)

    def and_own(fs: FileSystem, layout: Layout, group: str) -> OwnerSeen:
        seen = look_for_owner(fs, layout, group)
        channel.consumer("auto-a", owner_timeout_seconds=0)
        return seen

    pass_time(groups, DAY_MS - LOOK_MS)
    monkeypatch.setattr(local_owners, "look_for_owner", and_own)
    groups.look(LOOK_MS)
    assert names(channel) == {"auto-a"}
    assert peek(channel, group="auto-a") == numbered(1, 9)


def test_a_group_that_was_owned_after_the_last_look_stays(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)

    def and_own(fs: FileSystem, layout: Layout, group: str) -> OwnerSeen:
        seen = look_for_owner(fs, layout, group)
        channel.consumer("auto-a")
        give_up(channel, "auto-a")
        return seen

    pass_time(groups, DAY_MS - LOOK_MS)
    monkeypatch.setattr(local_owners, "look_for_owner", and_own)
    groups.look(LOOK_MS)
    assert names(channel) == {"auto-a"}


def test_a_group_that_is_dropped_by_hand_after_a_look_leaves_no_file(
    channel: Channel, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)

    def and_drop(fs: FileSystem, layout: Layout, group: str) -> OwnerSeen:
        seen = look_for_owner(fs, layout, group)
        channel.drop_group("auto-a")
        return seen

    pass_time(groups, DAY_MS - LOOK_MS)
    monkeypatch.setattr(local_owners, "look_for_owner", and_drop)
    groups.look(LOOK_MS)
    assert os.listdir(path / "groups") == []


def test_a_group_whose_time_was_made_longer_meanwhile_stays(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, DAY_MS - LOOK_MS)
    state = channel.engine().state
    state.options = replace(state.options, auto_group_ttl=10 * 86_400)
    groups.look(LOOK_MS)
    assert names(channel) == {"auto-a"}


# ── what goes with a group ──────────────────────────────────────────────────────────────────────


def test_the_events_that_only_it_had_yet_to_take_go(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    take(channel, 10)
    assert channel.stats().channel_size == 9
    pass_time(look_after(channel), DAY_MS)
    assert channel.stats().channel_size == 0


def test_its_files_go_and_nothing_of_it_is_left(channel: Channel, path: Path) -> None:
    make_automatic(channel, "auto-a")
    channel.consumer("auto-a").prepare([(2, 3)])
    give_up(channel, "auto-a")
    pass_time(look_after(channel), DAY_MS)
    assert names(channel) == set()
    assert os.listdir(path / "groups") == []
    assert not channel.engine().state.pending
    assert verify(path).healthy


def test_a_group_that_is_dropped_by_hand_leaves_nothing_either(channel: Channel, path: Path) -> None:
    make_automatic(channel, "auto-a")
    channel.consumer("auto-a").prepare([(2, 3)])
    channel.drop_group("auto-a")
    assert os.listdir(path / "groups") == []
    assert not channel.engine().state.pending


def test_a_stream_that_comes_back_is_told_what_it_had_not_read(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    take(channel, 10)
    pass_time(look_after(channel), DAY_MS)
    put(channel, *numbered(10, 5))
    again: GroupRecord = {"group": "auto-a", "position": 0, "auto": True, "since": 1}
    channel.engine().commit(Control(FrameType.GROUP, again))
    group = channel.engine().follow().groups["auto-a"]
    assert list(group.removed) == [(2, 10)]
    assert peek(channel, group="auto-a") == numbered(10, 5)


def test_a_warning_names_the_group_and_what_waits_no_longer(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    make_automatic(channel, "auto-a")
    with caplog.at_level(logging.INFO):
        pass_time(look_after(channel), DAY_MS)
    (said,) = [r for r in caplog.records if r.name == automatic_groups.__name__]
    assert said.levelno == logging.WARNING
    for words in ("'auto-a'", "no owner for 1.0 days", "9 events do not wait for it any more", "raise auto_group_ttl"):
        assert words in said.getMessage()


def test_a_group_that_never_planned_goes_without_a_warning(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    make_automatic(channel, "auto-a", planned=0)
    with caplog.at_level(logging.INFO):
        pass_time(look_after(channel), HOUR_MS)
    (said,) = [r for r in caplog.records if r.name == automatic_groups.__name__]
    assert said.levelno == logging.INFO
    assert said.getMessage().startswith("the group 'auto-a' of ")


def test_a_stream_whose_group_goes_again_and_again_reads_everything_once(open_channel: Open) -> None:
    channel, reader = open_channel(auto_group_ttl=1), open_channel()
    bodies = numbered(0, 200)
    put(channel, *bodies)
    channel.consumer("holds-what-was-read")
    groups, done = look_after(channel), threading.Event()

    def drop() -> None:
        while not done.is_set():
            groups.look(600)

    dropping = threading.Thread(target=drop)
    dropping.start()
    taken: list[bytes] = []
    try:
        while len(taken) < len(bodies):
            again = partial(create_group, reader.engine(), "auto-a", "earliest", automatic=True, since=len(taken))
            reader.consumer("auto-a", create=again)
            taken += take(reader, 5, "auto-a")
            give_up(reader, "auto-a")
    finally:
        done.set()
        dropping.join()
    assert taken == bodies


# ── what it costs, and what goes wrong ──────────────────────────────────────────────────────────


def test_of_many_groups_each_is_looked_at_in_its_turn(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[GroupRecord] = [{"group": f"auto-{i}", "position": 0, "auto": True} for i in range(250)]
    for record in records:
        channel.engine().commit(Control(FrameType.GROUP, record))
    looked: list[str] = []

    def and_note(fs: FileSystem, layout: Layout, group: str) -> OwnerSeen:
        looked.append(group)
        return look_for_owner(fs, layout, group)

    monkeypatch.setattr(local_owners, "look_for_owner", and_note)
    groups = look_after(channel)
    for seen in (100, 200, 250, 250):
        groups.look(1000)
        assert len(looked) == len(set(looked)) == seen
    pass_time(groups, 2 * int(UNPLANNED_SECONDS * 1000))
    assert names(channel) == set()


def test_a_disk_that_refuses_leaves_the_group_for_later(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)

    def refuse(*_: object) -> None:
        raise StorageError("no space left on device")

    pass_time(groups, DAY_MS - LOOK_MS)
    with monkeypatch.context() as broken:
        broken.setattr(channel.engine().log, "append", refuse)
        for _ in range(5):
            groups.look(15_000)
        groups.look(LOOK_MS)
        groups.settle(0)
        assert caplog.text.count("no space left on device") == 1
    assert names(channel) == {"auto-a"}
    pass_time(groups, 2 * LOOK_MS)
    assert names(channel) == set()


def test_a_lock_file_that_cannot_be_read_leaves_the_group(channel: Channel, path: Path) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    lock = channel.engine().layout.group_lock("auto-a")
    lock.unlink()
    lock.mkdir()
    pass_time(groups, 2 * DAY_MS)
    assert names(channel) == {"auto-a"}


def test_a_channel_that_was_moved_is_left_alone(channel: Channel, path: Path) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, DAY_MS - LOOK_MS)
    path.rename(path.with_name("moved"))
    with pytest.raises(ChannelClosedError):
        groups.look(LOOK_MS)
    path.with_name("moved").rename(path)


def test_a_group_of_a_name_that_is_not_allowed_is_left_alone(channel: Channel) -> None:
    record: GroupRecord = {"group": "../a", "position": 0, "auto": True}
    channel.engine().commit(Control(FrameType.GROUP, record))
    groups = look_after(channel)
    pass_time(groups, 2 * DAY_MS)
    assert names(channel) == {"../a"}


# ── who looks after them ────────────────────────────────────────────────────────────────────────


def test_a_handle_that_creates_an_automatic_group_looks_after_it(open_channel: Open) -> None:
    channel = open_channel()
    create_group(channel.engine(), "named", "earliest")
    assert not is_looked_after(channel)
    create_group(channel.engine(), "auto-a", "earliest", automatic=True)
    assert is_looked_after(channel)


def test_a_handle_that_is_opened_looks_after_the_groups_that_are_there(open_channel: Open) -> None:
    first = open_channel()
    make_automatic(first, "auto-a", planned=0)
    assert is_looked_after(open_channel())


def test_a_put_that_finds_no_room_looks_after_groups_that_others_created(open_channel: Open) -> None:
    channel, other = open_channel(overflow_capacity=10, keep_alive=0), open_channel()
    put(channel, *numbered(0, 10))
    create_group(other.engine(), "auto-a", "earliest", automatic=True)
    assert not is_looked_after(channel)
    with pytest.raises(ChannelFullError):
        put(channel, b"x")
    assert is_looked_after(channel)


def is_looked_after(channel: Channel) -> bool:
    """Tell whether a handle has a thread for it."""
    return channel.engine().upkeep._thread.is_alive()
