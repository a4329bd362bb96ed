from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    DataLossError,
    GroupOwnedError,
    MemoryLossWarning,
    OptionError,
)
from spillable_stream.channel import groups
from spillable_stream.channel.finish import group_owner, wait_for_owner_to_go
from spillable_stream.channel.group_commit import Ticket
from spillable_stream.channel.group_position import read_group_position
from spillable_stream.channel.requests import Abandon, Control, Take
from spillable_stream.format.frame import FrameType
from spillable_stream.log.reader import EventReader
from spillable_stream.storage.lock import FileLock
from tests.damage import lose_memory, reboot
from tests.events import numbered, peek, put, take

Open = Callable[..., Channel]


def test_groups_take_independently(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    assert peek(channel, group="b") == numbered(0, 5)
    assert take(channel, 2, "a") == numbered(0, 2)
    assert take(channel, 4, "b") == numbered(0, 4)
    assert take(channel, group="a") == numbered(2, 3)
    groups = channel.stats().groups
    assert (groups["a"].position, groups["a"].lag) == (5, 0)
    assert (groups["b"].position, groups["b"].lag) == (4, 1)


def test_a_new_group_starts_at_the_oldest_event_that_is_left(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    take(channel, 2, "a")
    assert peek(channel, group="b") == numbered(2, 3)


@pytest.mark.parametrize(
    ("starting", "expected"), [("earliest", 0), ("latest", 5), ("0", 0), ("1", 0), ("4", 3), ("6", 5)]
)
def test_a_new_group_starts_where_it_is_told(open_channel: Open, starting: str, expected: int) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    channel.consumer("g", starting=starting)
    put(channel, *numbered(5, 1))
    assert peek(channel, group="g") == numbered(expected, 6 - expected)


def test_a_start_beyond_the_end_is_refused(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    with pytest.raises(OptionError, match="startingOffsets 7 is beyond the next event's ID, 6"):
        channel.consumer("g", starting="7")


def test_a_start_before_the_oldest_event_is_data_loss(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    take(channel, 3)
    with pytest.raises(DataLossError, match="the events 2 to 3 have left the channel"):
        channel.consumer("g", starting="2")


def test_a_group_has_one_owner_and_the_error_names_it(open_channel: Open) -> None:
    first, second = open_channel(), open_channel()
    put(first, b"x")
    first.consumer("g")
    with pytest.raises(GroupOwnedError) as caught:
        second.consumer("g", owner_timeout_seconds=0.05)
    assert f"owned by pid {os.getpid()} on {os.uname().nodename}" in str(caught.value)
    assert peek(second, group="another") == [b"x"]
    first.close()
    assert peek(second, group="g") == [b"x"]


def test_a_new_owner_waits_for_the_former_to_go(open_channel: Open) -> None:
    first, second = open_channel(), open_channel()
    first.consumer("g")
    thread = threading.Timer(0.1, first.close)
    thread.start()
    second.consumer("g", owner_timeout_seconds=30)
    thread.join()


HOLD = """
import sys, time
from spillable_stream import Channel
channel = Channel(sys.argv[1], create=False)
consumer = channel.consumer("g")
ranges = consumer.claim(4)
if sys.argv[2] == "prepared":
    consumer.prepare(ranges)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["claimed", "prepared"])
def test_what_a_killed_owner_held_is_back_at_the_head(path: Path, open_channel: Open, how: str) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path), how], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "held\n"
        assert channel.stats().groups["g"].in_flight == (4 if how == "prepared" else 0)
        owner.send_signal(signal.SIGKILL)
    assert take(channel, group="g") == numbered(0, 10)
    assert channel.stats().groups["g"].in_flight == 0


def test_prepared_takes_commit_or_return(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    one, two = consumer.claim(3), consumer.claim(3)
    first, second = consumer.prepare(one), consumer.prepare(two)
    assert channel.stats().groups["g"].in_flight == 6
    assert consumer.commit(two, second) == second
    consumer.release(one, first)
    assert (channel.stats().groups["g"].in_flight, consumer.position()) == (0, 0)
    assert peek(channel, group="g") == numbered(0, 3) + numbered(6, 4)


@pytest.mark.parametrize("memory", [0, 100])
@pytest.mark.parametrize("order", ["commit, give up", "give up, commit", "commit, commit", "give up, give up"])
def test_a_prepared_take_that_is_ended_twice_in_one_append_leaves_a_log_that_opens(
    path: Path, open_channel: Open, order: str, memory: int
) -> None:
    """Two threads may end it at once; the one that comes second finds it ended."""
    channel = open_channel(memory_capacity=memory)
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    ranges = consumer.claim(3)
    prepared = consumer.prepare(ranges)
    ends = {"commit": lambda: Take("g", ranges, prepared), "give up": lambda: Abandon([prepared])}
    group = [Ticket(ends[word]()) for word in order.split(", ")]
    channel.engine()._commit_group(group)
    assert all(ticket.done for ticket in group)
    left = numbered(3, 7) if "commit" in order else numbered(0, 10)
    channel.close()
    for forget in (lambda: None, lambda: reboot(path)):
        forget()
        with Channel(path) as channel:
            assert peek(channel, group="g") == left


def test_a_claim_takes_what_is_free_from_the_head_on(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    assert consumer.claim(4) == [(1, 4)]
    assert consumer.claim(3) == [(5, 7)]
    consumer.release([(2, 3)])
    assert consumer.claim(4) == [(2, 3), (8, 9)]


def test_a_group_has_the_longest_name_in_any_script(open_channel: Open) -> None:
    """Its files are named after it."""
    channel = open_channel(memory_capacity=10)
    for name in ("群" * 80, "g" * 128):
        put(channel, *numbered(0, 3))
        assert take(channel, group=name) == numbered(0, 3)


def test_a_dropped_group_holds_back_nothing(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    peek(channel, group="slow")
    take(channel, group="fast")
    assert channel.stats().channel_size == 5
    channel.drop_group("slow")
    assert channel.stats().channel_size == 0
    assert list(channel.stats().groups) == ["fast"]


def test_dropping_a_group_that_is_not_there_names_those_that_are(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    with pytest.raises(OptionError, match=re.escape(f"{path} has no group 'slow'; its groups are: none")):
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
    with pytest.raises(GroupOwnedError, match=r"owned by pid .*; stop it first"):
        second.drop_group("g")


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
    assert wait_for_owner_to_go(first.engine(), "g", "nobody", 0)
    assert owned


def test_a_group_dropped_under_a_transaction_says_so(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    with channel.take_transaction("g") as tx:
        tx.take_many(2)
        channel.drop_group("g")
        with pytest.raises(ChannelClosedError, match=r"'g' .* was dropped"):
            tx.take_many(1)
        tx.rollback()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 129, "a b"])
def test_a_group_name_that_is_no_file_name_is_refused(open_channel: Open, name: str) -> None:
    with pytest.raises(OptionError, match="group must be letters"):
        open_channel().take_transaction(name)


def test_a_group_made_while_events_leave_begins_at_the_first_that_is_left(
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


def test_a_take_of_a_group_that_was_dropped_and_made_again_does_not_commit(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    put(channel, *numbered(0, 5))
    peek(channel, group="keeper")
    with channel.take_transaction("g") as tx:
        tx.take_many(3)
        channel.drop_group("g")
        assert peek(other, group="g") == numbered(0, 5)
        with pytest.raises(
            ChannelClosedError, match=r"'g' of .* was dropped or given up; its events are back in the queue"
        ):
            tx.commit()
        tx.rollback()
    assert peek(other, group="g") == numbered(0, 5)


# ── names ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "group", ["", ".", "..", "../../x", "a/b", ".hidden", "a\0b", "a\n", "g" * 300, "\ud800", None, 7, []], ids=ascii
)
def test_a_groups_name_that_is_no_files_name_is_refused_everywhere_and_leaves_no_file(
    open_channel: Open, path: Path, group: Any
) -> None:
    channel = open_channel()
    before, log = sorted(path.parent.rglob("*")), channel.engine().positions
    for use in (channel.consumer, channel.take_transaction, channel.drop_group):
        with pytest.raises(OptionError, match="group must be letters, digits"):
            use(group)
    with pytest.raises(OptionError):
        group_owner(channel.engine(), group)
    with pytest.raises(OptionError):
        wait_for_owner_to_go(channel.engine(), group, "", 0)
    assert sorted(path.parent.rglob("*")) == before
    assert channel.engine().positions == log


@pytest.mark.parametrize("group", ["../../x", "a b"])
def test_a_group_of_an_older_log_whose_name_is_not_allowed_now_can_be_dropped(
    open_channel: Open, path: Path, group: str
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    channel.engine().commit(Control(FrameType.GROUP, {"group": group, "position": 0}))
    take(channel)
    before = sorted(path.parent.rglob("*"))
    assert channel.stats().channel_size == 5
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


def test_an_owner_whose_lock_file_was_removed_takes_nothing_any_more(open_channel: Open, path: Path) -> None:
    """A cleaner of old files removes it; the next consumer makes another one, and is the owner."""
    channel, other = open_channel(), open_channel()
    put(channel, *numbered(0, 4))
    tx = channel.take_transaction("g")
    tx.begin()
    assert len(tx.take_many(2)) == 2
    (path / "groups" / "g.lock").unlink()
    assert take(other, 4, "g") == numbered(0, 4)
    with pytest.raises(GroupOwnedError, match="was moved, removed or replaced; the events are back in the queue"):
        tx.commit()
    tx.rollback()
    with pytest.raises(GroupOwnedError, match="was moved, removed or replaced"):
        channel.consumer("g").prepare([(1, 2)])
    assert other.stats().groups["g"].lag == 0


# ── many groups ─────────────────────────────────────────────────────────────────────────────


def open_files(under: Path) -> list[str]:
    """Return the files below a directory, or in shared memory, that this process has open."""
    links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if link.is_symlink()]
    return [name for name in found if name.startswith((str(under), "/dev/shm"))]


@pytest.mark.parametrize("options", [{}, {"memory_capacity": 100}], ids=["disk", "memory"])
def test_a_group_that_was_taken_from_keeps_its_lock_open_and_nothing_else(
    path: Path, open_channel: Open, options: dict[str, int]
) -> None:
    channel = open_channel(**options)
    put(channel, *numbered(0, 10))
    channel.consumer("idle")  # so that every group begins with the first event
    before = len(open_files(path))
    for i in range(200):
        assert take(channel, 3, f"group-{i}") == numbered(0, 3)
    names = open_files(path)
    assert sum(name.endswith(".lock") for name in names) - 200 <= 5
    assert len(names) - before <= 200 + 2 * 32
    assert take(channel, 3, "group-0") == numbered(3, 3)
    layout = channel.engine().layout
    told = [read_group_position(channel.engine().fs, layout, f"group-{i}") for i in (0, 1, 199)]
    assert told == ([(6, []), (3, []), (3, [])] if options else [(0, [])] * 3)
    channel.close()
    assert open_files(path) == []


@pytest.mark.parametrize("taken_before", [0, 4])
def test_events_that_a_flush_moves_before_the_first_is_read_are_read_where_they_are_now(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, taken_before: int
) -> None:
    channel, other = open_channel(memory_capacity=100), open_channel(memory_capacity=100)
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    ranges = [(1, taken_before)] if taken_before else []
    readers, find = channel.engine().readers, channel.engine().readers.get

    def get(*arguments: Any) -> EventReader:
        if other.stats().memory.events and len(asked) == len(ranges):
            other.flush()
            other.checkpoint()
            readers.clear()  # what was open of memory
        asked.append(arguments)
        return find(*arguments)

    asked: list[Any] = []
    monkeypatch.setattr(readers, "get", get)
    found = consumer.read([*ranges, (7, 10)])
    assert not other.stats().memory.events, "the events were moved while they were read"
    assert [(read.first_id, read.last_id) for read in found] == [*ranges, (7, 10)]
    consumer.close()
