"""How groups begin and how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    DataLossError,
    GroupOwnedError,
    MemoryLossWarning,
    OptionError,
)
from spillable_stream.engine import groups
from spillable_stream.engine.groups import create_group, existing_group
from spillable_stream.engine.local.local_owners import LocalOwners
from spillable_stream.engine.requests import Control
from spillable_stream.engine.seeking import seek_group
from spillable_stream.format.frame import FrameType
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.storage.lock import FileLock
from tests.support import pythons
from tests.support.command_line import ASCII_FILES, ROOT
from tests.support.damage import kill, lose_memory
from tests.support.events import numbered, peek, put, take

Open = Callable[..., Channel]


def test_a_new_group_starts_at_the_oldest_event_that_is_left(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    take(channel, 2, "a")
    assert peek(channel, group="b") == numbered(2, 3)


@pytest.mark.parametrize(("starting", "expected"), [("earliest", 0), ("latest", 5), ("1", 0), ("4", 3), ("6", 5)])
def test_a_new_group_starts_where_it_is_told(open_channel: Open, starting: str, expected: int) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    channel.consumer("g", starting=starting)
    put(channel, *numbered(5, 1))
    assert peek(channel, group="g") == numbered(expected, 6 - expected)


def test_a_start_at_an_id_that_no_event_has_is_refused_as_a_seek_there_is(open_channel: Open) -> None:
    """It began at the first event that is kept, and said nothing of those that had left before."""
    channel = open_channel()
    put(channel, *numbered(0, 5))
    take(channel, 2, "a")
    for starting in ("0", "00", "0+"):
        with pytest.raises(OptionError, match=f"no event has the ID 0: the first event of {channel.path} was 1"):
            channel.consumer("g", starting=starting)
    with pytest.raises(OptionError, match="no event has the ID 0"):
        channel.seek("a", 0)
    assert "g" not in channel.stats().groups


def test_a_start_beyond_the_end_is_refused(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    with pytest.raises(OptionError, match=f"the start 7 is after the next event of {channel.path}, 6"):
        channel.consumer("g", starting="7")


def test_a_start_before_the_oldest_event_is_data_loss(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    take(channel, 3)
    with pytest.raises(DataLossError, match=r"the events 2 to 3 have left .*: the first event that it keeps is 4\."):
        channel.consumer("g", starting="2")


@pytest.mark.parametrize(("starting", "position"), [("1+", 3), ("3+", 3), ("4+", 3), ("5+", 4), ("6+", 5)])
def test_a_new_group_may_start_at_an_event_or_the_first_that_is_kept(
    open_channel: Open, starting: str, position: int
) -> None:
    channel = open_channel(retention_ms=10**9)
    put(channel, *numbered(0, 5))
    take(channel, 5)
    channel.engine().commit(Control(FrameType.RETENTION, {"through": 3}))
    assert create_group(channel.engine(), "g", starting) == position
    with pytest.raises(OptionError, match="the start 7 is after"):
        create_group(channel.engine(), "new", "7+")


def test_a_new_group_may_start_at_any_kept_event(open_channel: Open) -> None:
    channel = open_channel(retention_ms=3_600_000)
    put(channel, *numbered(0, 5))
    take(channel, 3)
    for i, starting in enumerate(["earliest", "1", "2", "3", "4", "6"]):
        channel.consumer(f"g{i}", starting=starting)
    lags = [g.lag for name, g in channel.stats().groups.items() if name != "default"]
    assert lags == [5, 5, 4, 3, 2, 0]
    assert channel.stats().first_id == 4


def test_a_group_that_a_stream_creates_is_automatic(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    assert create_group(channel.engine(), "a", "3", automatic=True) == 2
    assert create_group(channel.engine(), "named", "3") == 2
    assert [g.is_automatic for g in channel.engine().state.groups.values()] == [True, False]
    assert not channel.engine().state.groups["a"].has_planned


def test_a_stream_whose_group_was_dropped_continues_where_it_had_read(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    peek(channel, group="slow")
    assert create_group(channel.engine(), "a", "latest", automatic=True, since=4) == 4
    group = channel.engine().state.groups["a"]
    assert (group.is_automatic, group.has_planned, list(group.removed)) == (True, True, [])
    channel.close()
    assert peek(open_channel(), group="a") == numbered(4, 6)


def test_what_has_left_since_a_streams_group_was_dropped_is_removed_for_the_new_one(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    take(channel, 7, "other")
    assert create_group(channel.engine(), "a", "earliest", automatic=True, since=4) == 7
    assert list(channel.engine().state.groups["a"].removed) == [(5, 7)]
    assert peek(channel, group="a") == numbered(7, 3)


def test_a_stream_that_has_read_more_than_there_is_gets_no_group(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    with pytest.raises(OptionError, match=f"read {path} up to the event 6, but its last event is 5: it is an"):
        create_group(channel.engine(), "a", "earliest", automatic=True, since=6)
    assert channel.stats().groups == {}


@pytest.mark.parametrize("since", [None, 1])
def test_a_new_group_passes_over_what_memory_has_freed_ahead_of_others(open_channel: Open, since: int | None) -> None:
    channel = open_channel(memory_capacity=1000)
    for body in (b"a", b"b", b"c"):
        put(channel, *[body * 200_000] * 3)
    consumer = channel.consumer("ahead")
    consumer.claim(3)
    consumer.commit(consumer.claim(3))
    create_group(channel.engine(), "new", "earliest", automatic=since is not None, since=since)
    left = [b"a"] * (3 - (since or 0)) + [b"c"] * 3
    assert [body[:1] for body in peek(channel, group="new")] == left
    kill(channel)
    assert [body[:1] for body in peek(open_channel(), group="new")] == left


def test_a_dropped_group_holds_back_nothing(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    peek(channel, group="slow")
    take(channel, group="fast")
    assert channel.stats().channel_size == 5
    channel.drop_group("slow")
    assert channel.stats().channel_size == 0
    assert list(channel.stats().groups) == ["fast"]


def test_the_groups_that_streams_have_for_themselves_are_not_named_instead_of_a_wrong_one(path: Path) -> None:
    state = ChannelState(ChannelOptions(), [b"schema"])
    state.groups |= {"mine": GroupState(0), "auto-1": GroupState(0, is_automatic=True)}
    with pytest.raises(OptionError, match=r"its groups are: 'mine'$"):
        existing_group(state, "mein", path)


def test_dropping_a_group_that_is_not_there_names_those_that_are(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    with pytest.raises(OptionError, match=re.escape(f"{path} has no group 'slow', nor any other: the first take")):
        channel.drop_group("slow")
    put(channel, *numbered(0, 5))
    for name in numbered(0, 22):
        peek(channel, group=f"g{name.decode()}")
    files, log = sorted(path.rglob("*")), channel.engine().positions
    with pytest.raises(OptionError, match=r"has no group 'G1'; its groups are: 'g0', .*'g19' and 2 more$"):
        channel.drop_group("G1")
    assert sorted(path.rglob("*")) == files
    assert channel.engine().positions == log


def test_a_group_that_another_process_dropped_is_not_there(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    put(channel, *numbered(0, 5))
    peek(channel, group="g")
    other.stats()
    channel.drop_group("g")
    with pytest.raises(OptionError, match="has no group 'g'"):
        other.drop_group("g")


def test_a_group_that_is_owned_is_not_dropped(open_channel: Open) -> None:
    first, second = open_channel(), open_channel()
    first.consumer("g")
    with pytest.raises(GroupOwnedError, match=r"owned by pid .*Close that handle first"):
        second.drop_group("g")


Change = Callable[[Channel], object]
CHANGES: list[Change] = [lambda channel: channel.drop_group("g"), lambda channel: channel.seek("g", "latest")]


@contextmanager
def changing(channel: Channel, at_most_seconds: float) -> Iterator[None]:
    """Let another thread move the group `g`, until the block ends or a time is over."""
    there, go = threading.Event(), threading.Event()

    def choose(state: ChannelState) -> int:
        there.set()
        go.wait(at_most_seconds)
        return 1

    with Channel(channel.path) as other:
        thread = threading.Thread(target=seek_group, args=(other.engine(), "g", choose))
        thread.start()
        there.wait()
        try:
            yield
        finally:
            go.set()
            thread.join()


@pytest.mark.parametrize("change", CHANGES, ids=["drop", "seek"])
def test_a_change_waits_for_another_one(open_channel: Open, change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    patiently = partialmethod(LocalOwners.without_owner, timeout_seconds=60.0)
    monkeypatch.setattr(LocalOwners, "without_owner", patiently)
    channel = open_channel()
    put(channel, *numbered(0, 5))
    create_group(channel.engine(), "g", "earliest")
    with changing(channel, 0.2):
        change(channel)
    left = channel.stats().groups
    assert "g" not in left or left["g"].position == 5


@pytest.mark.parametrize("change", CHANGES, ids=["drop", "seek"])
def test_a_refused_change_does_not_name_an_owner_that_is_dead(
    open_channel: Open, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    program = "import sys, spillable_stream as s\nwith s.Channel(sys.argv[1]) as c: print(c.consumer('g').owner)"
    done = pythons.run([sys.executable, "-c", program, str(channel.path)], capture_output=True, text=True, check=True)
    at_once = partialmethod(LocalOwners.without_owner, timeout_seconds=0.0)
    monkeypatch.setattr(LocalOwners, "without_owner", at_once)
    with (
        changing(channel, 60.0),
        pytest.raises(GroupOwnedError, match="another process or thread changes the group 'g' of") as error,
    ):
        change(channel)
    assert error.value.owner == "" and done.stdout.strip() not in str(error.value)


@pytest.mark.parametrize("change", CHANGES, ids=["drop", "seek"])
def test_a_change_of_a_group_that_is_dropped_meanwhile_leaves_no_file(
    open_channel: Open, path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(), open_channel()
    create_group(channel.engine(), "g", "earliest", automatic=True)
    real = FileLock.open

    def late(*args: Any, **named: Any) -> FileLock:
        monkeypatch.undo()
        other.drop_group("g")
        return real(*args, **named)

    monkeypatch.setattr(FileLock, "open", late)
    with pytest.raises(OptionError, match="has no group 'g'"):
        change(channel)
    assert not list(path.rglob("g.*"))


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 129, "a b"])
def test_a_group_name_that_is_not_a_file_name_is_refused(open_channel: Open, name: str) -> None:
    with pytest.raises(OptionError, match="group must be letters"):
        open_channel().take_transaction(name)


def test_a_group_that_is_created_while_events_leave_begins_at_the_first_that_is_left(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(), open_channel()
    put(channel, *numbered(0, 10))
    real = groups.starting_position

    def slow(*arguments: object) -> int:
        position = real(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        take(other, 6, "fast")
        return position

    peek(other, group="fast")
    monkeypatch.setattr(groups, "starting_position", slow)
    assert peek(channel, group="new") == numbered(6, 4)


@pytest.mark.parametrize(
    "group", ["", ".", "..", "../../x", "a/b", ".hidden", "a\0b", "a\n", "g" * 300, "\ud800", None, 7, []], ids=ascii
)
def test_a_groups_name_that_is_not_a_files_name_is_refused_everywhere_and_leaves_no_file(
    open_channel: Open, path: Path, group: Any
) -> None:
    channel = open_channel()
    before, log = sorted(path.parent.rglob("*")), channel.engine().positions
    for use in (channel.consumer, channel.take_transaction, channel.drop_group):
        with pytest.raises(OptionError, match="group must be letters, digits"):
            use(group)
    with pytest.raises(OptionError):
        channel.engine().owners.owner_of(group)
    with pytest.raises(OptionError):
        channel.engine().owners.wait_for_owner_to_go(group, "", 0)
    assert sorted(path.parent.rglob("*")) == before
    assert channel.engine().positions == log


@pytest.mark.parametrize("group", ["../../x", "a b"])
def test_a_group_of_an_older_log_whose_name_is_not_allowed_now_can_be_read_and_dropped(
    open_channel: Open, path: Path, group: str
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    channel.engine().commit(Control(FrameType.GROUP, {"group": group, "position": 0}))
    take(channel)
    before = sorted(path.parent.rglob("*"))
    assert channel.stats().channel_size == 5
    assert sum(batch.num_rows for batch in channel.read(group=group)) == 5
    channel.drop_group(group)
    assert channel.stats().channel_size == 0
    assert sorted(path.parent.rglob("*")) == before
    with pytest.raises(OptionError, match="group must be"):
        channel.drop_group(group)


def test_a_group_of_an_older_log_takes_no_part_in_the_report_of_a_lost_memory_tier(
    open_channel: Open, path: Path
) -> None:
    with open_channel(memory_capacity=100, flush_on_close=False) as channel:
        channel.engine().commit(Control(FrameType.GROUP, {"group": "../../x", "position": 0}))
        put(channel, *numbered(0, 5))
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    assert channel.stats().groups["../../x"].lost[0][0] == 1


def test_a_process_that_names_files_in_ascii_opens_a_channel_that_lost_what_a_group_with_other_letters_had_in_memory(
    open_channel: Open, path: Path
) -> None:
    with open_channel(memory_capacity=100, flush_on_close=False) as channel:
        put(channel, *numbered(0, 5))
        take(channel, 2, "grüße")
    lose_memory(path)
    program = "import sys, spillable_stream as ss; print(ss.Channel(sys.argv[1]).stats().groups['gr\\xfc\\xdfe'].lost)"
    environment = {**os.environ, **ASCII_FILES, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("((3, "), "what its file says it took is not lost"
