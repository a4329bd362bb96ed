"""What each group has lost when the memory tier is gone: what it had yet to take, as far as its position tells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.local.position_hint import PositionHint, read_position_hint
from spillable_stream.log.identity_file import read_identity
from spillable_stream.state.group import GroupState
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import flip, kill, lose_memory
from tests.support.events import ids, numbered, put, take
from tests.support.two_tiers import OPTIONS, RESERVED, kill_spilled, reopened, spilled

Open = Callable[..., Channel]


def test_what_a_helper_committed_for_the_owner_is_not_lost(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    consumer.prepare([(1, 4)])
    consumer.prepare([(5, 10)])
    with Channel(path) as other:
        assert finish_takes(other.engine(), "g", 10) == 2
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, channel.stats().groups["g"].lost) == ((), ((11, RESERVED),)), "and what is doubtful"


def test_an_owner_does_not_write_an_older_position_over_a_helpers(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(**OPTIONS), open_channel()
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    prepared = consumer.prepare([(1, 4)])
    consumer.prepare([(5, 10)])
    helper = threading.Thread(target=finish_takes, args=(other.engine(), "g", 10))
    write = PositionHint.write

    def slow_write(position: PositionHint, group: GroupState) -> None:
        if helper.ident is None:
            helper.start()
            helper.join(0.3)
        write(position, group)

    monkeypatch.setattr(PositionHint, "write", slow_write)
    consumer.commit([(1, 4)], prepared)
    helper.join()
    layout = read_identity(FileSystem(), path)
    assert read_position_hint(FileSystem(), layout, "g") == (10, [])


def test_what_was_taken_ahead_of_an_open_take_is_not_lost(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    with channel.take_transaction() as open_take:
        open_take.take_many(3)
        take(channel, 4)
        open_take.rollback()
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    channel.close()
    assert warning.lost == ((1, 3), (8, 10))


def test_groups_lose_only_what_they_had_not_taken(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    take(channel, 2, "slow")
    take(channel, 38, "fast")
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((3, 10), (36, 38))
        assert (list(ids(channel, "fast")), list(ids(channel, "slow"))) == ([], list(range(11, 36)))
        assert list(ids(channel, "new")) == list(range(11, 36))


def test_a_group_remembers_what_it_lost_until_it_takes_a_later_event(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    take(channel, 2)
    kill(channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.stats().groups["default"].lost == ((3, 10), (36, RESERVED)), "the doubtful ones, too"
        put(channel, b"later")
        take(channel, 25)
        assert channel.stats().groups["default"].lost == ((36, RESERVED),)
        take(channel, 1)
        assert channel.stats().groups["default"].lost == ()


def test_kept_events_that_went_with_memory_are_told_to_whoever_begins_there(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS, retention_bytes=1 << 20)
    channel.engine().upkeep.stop()
    put(channel, *numbered(0, 4))
    assert take(channel) == numbered(0, 4)
    channel.flush()
    put(channel, *numbered(4, 4))
    assert take(channel) == numbered(4, 4)
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((5, 8),)
        assert "every group had taken 4" in str(warning)
        assert channel.stats().groups["default"].lost == ((9, RESERVED),)
        assert take(channel, group="new") == numbered(0, 4)
        assert channel.stats().groups["new"].lost == ((5, RESERVED),)
    reopened_again = open_channel()
    assert reopened_again.engine().state.missing() == []


def test_a_group_that_is_created_after_the_loss_begins_with_what_is_there(path: Path, open_channel: Open) -> None:
    kill_spilled(open_channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.stats().first_id == 11
        put(channel, b"x")
        assert list(ids(channel, "new")) == [*range(11, 36), RESERVED + 1]
        assert channel.stats().groups["new"].lag == 26


def test_a_group_that_is_created_after_the_loss_is_told_about_it(path: Path, open_channel: Open) -> None:
    kill_spilled(open_channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.consumer("new").lost() == [(1, 10), (36, RESERVED)]
        assert channel.consumer("from-20", starting="20").lost() == [(36, RESERVED)]
        assert channel.consumer("latest", starting="latest").lost() == []
        take(channel, 1, "new")
        assert channel.consumer("new").lost() == [(36, RESERVED)]


def test_a_dropped_group_leaves_no_position_to_its_successor(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    take(channel, 6, "other")
    take(channel, 10)
    channel.drop_group("default")
    put(channel, *numbered(0, 5))
    take(channel, 1)
    layout = read_identity(FileSystem(), path)
    assert read_position_hint(FileSystem(), layout, "default") == (7, [])
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    channel.close()
    assert warning.lost == ((7, 15),)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_position_says_nothing(path: Path, open_channel: Open, damage: str) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    take(channel, 4)
    kill(channel)
    lose_memory(path)
    file = path / "groups" / "default.position"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:9])
    else:
        flip(file, 9)
    channel, warning = reopened(path)
    channel.close()
    assert warning.lost == ((1, 10),)


def test_a_prepared_take_in_lost_memory_is_forgotten(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    channel.consumer("g").prepare([(1, 5)])
    channel.checkpoint()
    kill(channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.consumer("g", resume=True).prepared() == {}
