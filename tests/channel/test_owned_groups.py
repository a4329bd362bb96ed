"""The groups of a handle: where they are moved, by whom, and how they are dropped."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    DataLossError,
    GroupOwnedError,
    LockTimeoutError,
    OptionError,
    ReadonlyChannelError,
    TransactionStateError,
)
from spillable_stream.engine import active_calls
from spillable_stream.engine.local.local_owners import LocalOwnership
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from tests.support import pythons
from tests.support.events import numbered, peek, put, take

Open = Callable[..., Channel]


@pytest.fixture
def kept(open_channel: Open) -> Channel:
    """A channel that keeps what is taken, of ten events, of which a group that nobody owns has taken seven."""
    channel = open_channel(retention_ms=3_600_000)
    put(channel, *numbered(0, 10))
    channel.port().create_group("g", "8")
    return channel


@pytest.mark.parametrize(
    ("to", "next_id"),
    [("earliest", 1), ("latest", 11), (4, 4), (11, 11), (timedelta(hours=1), 1), (datetime(2020, 1, 1, tzinfo=UTC), 1),
     (timedelta(0), 11)],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "not owned"])
def test_a_group_goes_to_any_place_by_its_owners_handle_or_without_an_owner(
    kept: Channel, owned: bool, to: Any, next_id: int
) -> None:
    if owned:
        kept.consumer("g")
    assert kept.seek("g", to) == next_id
    assert kept.stats().groups["g"].position == next_id - 1
    assert take(kept, group="g") == numbered(next_id - 1, 11 - next_id)


def test_a_group_that_goes_back_takes_everything_again_and_others_do_not(kept: Channel, open_channel: Open) -> None:
    assert take(kept) == numbered(0, 10)
    assert take(kept, group="g") == numbered(7, 3)
    kept.seek("g", 3)
    kept.close()
    with open_channel() as other:
        assert other.stats().groups["default"].lag == 0
        assert take(other, group="g") == numbered(2, 8)


def test_another_process_takes_from_where_a_group_was_moved(kept: Channel, path: Path) -> None:
    program = "import sys; from tests.support.events import take; from spillable_stream import Channel\nprint(take("
    kept.seek("g", 5)
    done = pythons.run(
        [sys.executable, "-c", f"{program}Channel(sys.argv[1]), 3, 'g'))", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(numbered(4, 3))
    assert kept.stats().groups["g"].position == 7
    assert kept.seek("g", "earliest") == 1


def test_a_group_that_another_handle_owns_is_not_moved(kept: Channel, open_channel: Open) -> None:
    other = open_channel()
    owner = other.consumer("g").owner
    with pytest.raises(
        GroupOwnedError, match=rf"the group 'g' of .* is owned by {re.escape(owner)}, which is this process"
    ):
        kept.seek("g", "earliest")
    assert kept.stats().groups["g"].position == 7
    other.close()
    assert kept.seek("g", "earliest") == 1


@pytest.mark.parametrize(
    ("group", "to", "error", "why"),
    [
        ("G", "earliest", OptionError, "has no group 'G'; its groups are: 'g'"),
        ("a/b", "earliest", OptionError, "group must be letters"),
        ("g", 12, OptionError, "the event 12 is after the next event of .*, 11"),
        ("g", 3, DataLossError, "the events 3 to 5 have left the channel: the first event that it keeps is 6"),
        ("g", datetime(2020, 1, 1), OptionError, "a time without a zone"),
        ("g", timedelta(-1), OptionError, "negative"),
        ("g", True, OptionError, "begins at True"),
        ("g", 2.5, OptionError, "begins at 2.5"),
        ("g", "yesterday", OptionError, "begins at 'yesterday'"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "not owned"])
def test_a_seek_to_nowhere_says_so_and_changes_nothing(
    kept: Channel, owned: bool, group: str, to: Any, error: type[Exception], why: str
) -> None:
    kept.engine().commit(Control(FrameType.RETENTION, {"through": 5}))
    if owned:
        claimed = kept.consumer("g").claim(1)
    before = kept.engine().positions
    with pytest.raises(error, match=why):
        kept.seek(group, to)
    assert kept.engine().positions == before
    if owned:
        kept.consumer("g").commit(claimed)


def test_a_handle_that_only_looks_moves_no_group(kept: Channel, path: Path) -> None:
    with Channel(path, readonly=True) as view, pytest.raises(ReadonlyChannelError, match="a seek would change"):
        view.seek("g", "earliest")


def test_without_retention_a_group_goes_as_far_as_there_are_events(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    take(channel, 5, "g")
    peek(channel, group="other")  # begins with the sixth
    take(channel, 2, "g")
    assert channel.seek("g", "earliest") == 6
    with pytest.raises(DataLossError, match=r"the event 5 has left .*: the first event that it keeps is 6\. Begin"):
        channel.seek("g", 5)
    assert channel.seek("g", "latest") == 11
    put(channel, b"new")
    assert take(channel, group="g") == [b"new"]


def test_a_closed_handle_moves_no_group(kept: Channel) -> None:
    kept.close()
    with pytest.raises(ChannelClosedError):
        kept.seek("g", "earliest")


def test_a_group_can_be_moved_while_threads_take_from_it(kept: Channel) -> None:
    """Whatever was begun before a seek commits nothing after it."""
    put(kept, *numbered(10, 190))
    kept.seek("g", "earliest")
    ended, taken = threading.Event(), list[list[int]]()

    def run() -> None:
        while not ended.is_set():
            try:
                with kept.take_transaction("g") as tx:
                    found = [e.write_order_id for e in tx.take_many(7)]
                taken.append(found)
            except TransactionStateError as e:
                assert "was moved by a seek" in str(e)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        kept.seek("g", "earliest")
    while kept.stats().groups["g"].lag:
        threading.Event().wait(0.001)
    ended.set()
    for thread in threads:
        thread.join()
    assert kept.consumer("g").position() == 200
    assert {i for found in taken for i in found} == set(range(1, 201))


def test_a_group_that_the_handle_owns_is_dropped_and_can_be_owned_again(kept: Channel, open_channel: Open) -> None:
    former = kept.consumer("g")
    kept.drop_group("g")
    assert "g" not in kept.stats().groups
    with pytest.raises(ChannelClosedError, match="dropped or given up"):
        former.claim(1)
    assert open_channel().consumer("g", owner_timeout_seconds=0.05).group == "g"


def test_a_group_that_the_handle_gave_up_can_be_owned_by_another_and_then_by_it_again(
    kept: Channel, open_channel: Open
) -> None:
    other = open_channel()
    assert take(kept, 1, "g") == numbered(7, 1)
    kept.consumer("g").close()
    assert take(other, 1, "g") == numbered(8, 1)
    other.consumer("g").close()
    assert take(kept, 1, "g") == numbered(9, 1)
    kept.consumer("g").close()
    assert kept.seek("g", "earliest") == 1


def test_a_group_is_given_up_once_though_a_thread_takes_as_it_meanwhile(
    kept: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first thread, which is slow here, would release the next owner's lock: it has the same descriptor."""
    close, taken, closing = LocalOwnership.close, list[list[bytes]](), threading.Semaphore(0)
    taker = threading.Thread(target=lambda: taken.append(take(kept, 1, "g")))

    def slow(owned: LocalOwnership) -> None:
        closing.release()
        if threading.current_thread() is not taker:
            assert closing.acquire(timeout=0)
            taker.start()
            assert not closing.acquire(timeout=0.2), "two threads close it at once"
        close(owned)

    assert take(kept, 1, "g") == numbered(7, 1)
    with monkeypatch.context() as patch:
        patch.setattr(LocalOwnership, "close", slow)
        kept.consumer("g").close()
        taker.join()
    assert taken == [numbered(8, 1)]


def test_a_group_whose_calls_do_not_end_is_dropped_by_the_next_call_once_they_have(
    kept: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_calls, "LONG_SECONDS", 0.01)
    kept.engine().lock_timeout_seconds = 0.01
    may_end, began = threading.Event(), threading.Event()
    calls = kept.consumer("g").active_calls
    taking = threading.Thread(target=calls.run, args=("a take", lambda: began.set() or may_end.wait()))
    taking.start()
    assert began.wait(60)
    said = (
        r"^drop_group of the group 'g' of .* has waited .* for a take of another thread;.* repeat the call that waited"
    )
    with pytest.raises(LockTimeoutError, match=said):
        kept.drop_group("g")
    assert "g" in kept.stats().groups
    may_end.set()
    taking.join()
    kept.drop_group("g")
    assert "g" not in kept.stats().groups


def test_a_close_that_waited_in_vain_for_a_take_gives_the_group_up_when_it_is_repeated(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_calls, "LONG_SECONDS", 0.01)
    channel = open_channel(lock_timeout=0.01)
    may_end, began = threading.Event(), threading.Event()
    calls = channel.consumer("g").active_calls
    taking = threading.Thread(target=calls.run, args=("a take", lambda: began.set() or may_end.wait()))
    taking.start()
    assert began.wait(60)
    with pytest.raises(LockTimeoutError, match="for a take of another thread"):
        channel.close()
    may_end.set()
    taking.join()
    channel.close()
    assert open_channel().consumer("g", owner_timeout_seconds=0.05).group == "g"


def test_a_handle_that_lost_a_group_says_so_once_and_owns_it_again_once_the_other_is_closed(
    kept: Channel, open_channel: Open, path: Path
) -> None:
    """A cleaner of old files removed the group's lock, and another handle created another one."""
    other = open_channel()
    open_takes = [kept.take_transaction("g") for _ in range(2)]
    for tx in open_takes:
        tx.begin()
        assert len(tx.take_many(1)) == 1
    (path / "groups" / "g.lock").unlink()
    assert take(other, 1, "g") == [b"7"]
    with pytest.raises(GroupOwnedError, match="begin another take, which owns it again"):
        open_takes[0].commit()
    with pytest.raises(GroupOwnedError, match="is owned by"):
        peek(kept, group="g")
    other.close()
    assert take(kept, 1, "g") == [b"8"]
    with pytest.raises(GroupOwnedError, match="begin another take, which owns it again"):
        open_takes[1].commit()
    for tx in open_takes:
        tx.rollback()
    assert take(kept, group="g") == [b"9"]


def test_a_handle_that_lost_a_group_moves_it_once_nobody_else_owns_it(
    kept: Channel, open_channel: Open, path: Path
) -> None:
    consumer, other = kept.consumer("g"), open_channel()
    (path / "groups" / "g.lock").unlink()
    assert take(other, 1, "g") == [b"7"]
    with pytest.raises(GroupOwnedError):
        consumer.prepare([(9, 9)])
    other.close()
    assert kept.seek("g", 10) == 10
    assert take(kept, group="g") == [b"9"]


def test_a_handle_has_one_consumer_of_a_group_however_many_threads_ask(kept: Channel) -> None:
    found, start = list[object](), threading.Barrier(4)

    def ask() -> None:
        start.wait()
        found.append(kept.consumer("g"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
