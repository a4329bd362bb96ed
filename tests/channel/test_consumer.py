from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    Event,
    GroupOwnedError,
)
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.group_commit import Ticket
from spillable_stream.engine.local.position_hint import read_position_hint
from spillable_stream.engine.requests import Request
from spillable_stream.engine.take_requests import Rollback, Take
from tests.support import pythons
from tests.support.damage import memory_of, reboot
from tests.support.delays import clock_of, put_late
from tests.support.events import numbered, peek, put, take
from tests.support.expiry import WallClock

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
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["claimed", "prepared"])
def test_what_a_killed_owner_held_is_back_at_the_head(path: Path, open_channel: Open, how: str) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    with pythons.Popen([sys.executable, "-c", HOLD, str(path), how], stdout=subprocess.PIPE, text=True) as owner:
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


def test_what_was_prepared_can_be_claimed_again_once_it_is_rolled_back_and_not_before(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))
    consumer = channel.consumer("g")
    ranges, engine, claimable = consumer.claim(3), channel.engine(), list[bool]()
    prepared, commit = consumer.prepare(ranges), engine.commit

    def looking(request: Request) -> CommitResult:
        claimable.append(consumer.available())
        return commit(request)

    monkeypatch.setattr(engine, "commit", looking)
    consumer.release(ranges, prepared)
    assert claimable == [False] and consumer.claim(3) == ranges


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
    ends = {"commit": lambda: Take("g", ranges, prepared), "give up": lambda: Rollback([prepared])}
    group = [Ticket(ends[word]()) for word in order.split(", ")]
    channel.engine().committer.commit_group(group)
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


def test_a_claim_delivers_what_is_due(open_channel: Open) -> None:
    channel = open_channel()
    clock, consumer = clock_of(channel), channel.consumer("g")
    put_late(channel, 5, b"late")
    assert consumer.claim(10) == []
    clock.pass_by(6)
    assert consumer.claim(10) == [(1, 1)]


def test_a_claim_gives_what_got_due_while_it_passed_over_expired_events(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, wall = open_channel(), WallClock(monkeypatch)
    consumer = channel.consumer("g")
    with channel.put_transaction() as tx:
        tx.put(Event(b"expires"), ttl=1)
    put_late(channel, 5, b"late")
    wall.pass_by(6)
    assert consumer.claim(10) == [(2, 2)]


def test_a_group_has_the_longest_name_in_any_script(open_channel: Open) -> None:
    """Its files are named after it."""
    channel = open_channel(memory_capacity=10)
    for name in ("群" * 80, "g" * 128):
        put(channel, *numbered(0, 3))
        assert take(channel, group=name) == numbered(0, 3)


def test_a_group_dropped_under_a_transaction_says_so(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    with channel.take_transaction("g") as tx:
        tx.take_many(2)
        channel.drop_group("g")
        with pytest.raises(ChannelClosedError, match=r"'g' .* was dropped"):
            tx.take_many(1)
        tx.rollback()


def test_a_take_of_a_group_that_was_dropped_and_created_again_does_not_commit(open_channel: Open) -> None:
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


def test_an_owner_whose_lock_file_was_removed_takes_nothing_any_more(open_channel: Open, path: Path) -> None:
    """A cleaner of old files removes it; the next consumer creates another one, and is the owner."""
    channel, other = open_channel(), open_channel()
    put(channel, *numbered(0, 4))
    tx, consumer = channel.take_transaction("g"), channel.consumer("g")
    tx.begin()
    assert len(tx.take_many(2)) == 2
    (path / "groups" / "g.lock").unlink()
    assert take(other, 4, "g") == numbered(0, 4)
    with pytest.raises(GroupOwnedError, match="was moved, removed or replaced; the events are back in the queue"):
        tx.commit()
    tx.rollback()
    with pytest.raises(GroupOwnedError, match="was moved, removed or replaced"):
        consumer.prepare([(1, 2)])
    assert other.stats().groups["g"].lag == 0


# ── many groups ─────────────────────────────────────────────────────────────────────────────


def open_files(*under: Path) -> list[str]:
    """Return the files below some directories that this process has open."""
    links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if link.is_symlink()]
    return [name for name in found if name.startswith(tuple(map(str, under)))]


@pytest.mark.parametrize("options", [{}, {"memory_capacity": 100}], ids=["disk", "memory"])
def test_a_group_that_was_taken_from_keeps_its_lock_open_and_nothing_else(
    path: Path, open_channel: Open, options: dict[str, int]
) -> None:
    channel = open_channel(**options)
    put(channel, *numbered(0, 10))
    channel.consumer("idle")  # so that every group begins with the first event
    places = [path, memory_of(path)] if options else [path]
    before = len(open_files(*places))
    for i in range(200):
        assert take(channel, 3, f"group-{i}") == numbered(0, 3)
    names = open_files(*places)
    assert sum(name.endswith(".lock") for name in names) - 200 <= 5
    assert len(names) - before <= 200 + 2 * 32
    assert take(channel, 3, "group-0") == numbered(3, 3)
    layout = channel.engine().layout
    told = [read_position_hint(channel.engine().fs, layout, f"group-{i}") for i in (0, 1, 199)]
    assert told == ([(6, []), (3, []), (3, [])] if options else [(0, [])] * 3)
    channel.close()
    assert open_files(*places) == []
