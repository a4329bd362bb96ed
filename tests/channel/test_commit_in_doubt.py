"""Commits that a second Ctrl-C leaves to the thread that leads: whether they count is not known for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from spillable_stream import Channel, Event, StorageError, TransactionStateError
from spillable_stream.channel.consumer import TakeToCommit
from spillable_stream.engine.group_commit import Ticket
from tests.support.events import numbered, peek, put, take
from tests.support.expiry import WallClock
from tests.support.fake_files import nth
from tests.support.hanging_disk import HangingDisk
from tests.support.waiting import wait_until

Open = Callable[..., Channel]


@pytest.fixture
def disk() -> HangingDisk:
    return HangingDisk()


@pytest.fixture
def channel(open_channel: Open, disk: HangingDisk) -> Channel:
    return open_channel(fs=disk)


@contextmanager
def in_doubt(channel: Channel, disk: HangingDisk, commit: Callable[[], object]) -> Iterator[None]:
    """Commit in a group that another thread leads; its sync hangs, and two interrupts end the wait for it.

    The commit ends with the block.
    """
    commits, me, waits = channel.engine().committer.group_commit, threading.get_ident(), Ticket.wait

    def interrupted(ticket: Ticket, timeout_seconds: float) -> None:
        if threading.get_ident() != me:
            return waits(ticket, timeout_seconds)
        assert disk.hangs.wait(60)
        raise KeyboardInterrupt

    def lead() -> None:
        with suppress(StorageError):
            put(channel, b"leader's")

    leading = threading.Thread(target=lead)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ticket, "wait", interrupted)
        patch.setattr(commits, "pace", lambda: wait_until(lambda: commits.waiting() == 2))
        disk.may_sync.clear()
        leading.start()
        wait_until(commits.waiting)
        with pytest.raises(KeyboardInterrupt) as raised:
            commit()
        assert "whether it counts is not known" in raised.value.__notes__[0]
    try:
        yield
    finally:
        disk.may_sync.set()
        leading.join(60)


def opened(transaction: Any) -> Any:
    transaction.begin()
    return transaction


def test_what_a_take_in_doubt_took_is_given_to_nobody(channel: Channel, disk: HangingDisk) -> None:
    put(channel, *numbered(0, 4))
    with opened(channel.take_transaction()) as tx:
        assert len(tx.take_many(2)) == 2
        with in_doubt(channel, disk, tx.commit):
            tx.rollback()
            assert peek(channel) == numbered(2, 2)
    assert take(channel) == [*numbered(2, 2), b"leader's"]


def test_what_a_take_in_doubt_took_is_back_in_the_queue_if_its_commit_fails(
    channel: Channel, disk: HangingDisk
) -> None:
    put(channel, *numbered(0, 4))
    with opened(channel.take_transaction()) as tx:
        assert len(tx.take_many(2)) == 2
        with in_doubt(channel, disk, tx.commit), disk.failing(nth("sync", 1)):
            tx.rollback()
            assert peek(channel) == numbered(2, 2)
            disk.may_sync.set()
            wait_until(lambda: len(peek(channel)) == 4)
    assert take(channel) == numbered(0, 4)


def test_expired_events_that_a_take_in_doubt_passes_over_are_counted_once(
    channel: Channel, disk: HangingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = WallClock(monkeypatch)
    with channel.put_transaction() as putting:
        putting.put(Event(b"expires"), ttl=1)
    put(channel, *numbered(0, 2))
    wall.pass_by(2)
    with opened(channel.take_transaction()) as tx:
        assert tx.take(0).body == b"0"
        with in_doubt(channel, disk, tx.commit):
            tx.rollback()
            assert channel.consumer("default").claims.passed is None
            assert peek(channel) == numbered(1, 1)
    assert take(channel) == [*numbered(1, 1), b"leader's"]
    assert channel.stats().groups["default"].expired_events == 1


def test_a_put_in_doubt_is_not_put_again(channel: Channel, disk: HangingDisk) -> None:
    with opened(channel.put_transaction()) as tx:
        tx.put(Event(b"once"))
        with in_doubt(channel, disk, tx.commit):
            with pytest.raises(TransactionStateError, match=r"commit\(\) can't follow .*roll it back"):
                tx.commit()
            tx.rollback()
    assert sorted(take(channel)) == [b"leader's", b"once"]


def test_a_take_whose_prepare_is_in_doubt_is_prepared_once(channel: Channel, disk: HangingDisk) -> None:
    put(channel, *numbered(0, 4))
    consumer = channel.consumer("g")
    with in_doubt(channel, disk, lambda: consumer.prepare([(1, 2)])):
        pass
    transaction = consumer.prepare([(1, 2)])
    assert consumer.prepared() == {transaction: [(1, 2)]}
    consumer.commit([(1, 2)], transaction)
    assert (consumer.position(), channel.stats().groups["g"].in_flight) == (2, 0)


def test_takes_whose_commit_is_in_doubt_are_committed_once(channel: Channel, disk: HangingDisk) -> None:
    put(channel, *numbered(0, 4))
    consumer = channel.consumer("g")
    takes = [TakeToCommit([(1, 2)], consumer.prepare([(1, 2)]))]
    with in_doubt(channel, disk, lambda: consumer.commit_all(takes)):
        pass
    written = channel.engine().log.position()
    consumer.commit_all(takes)
    assert consumer.position() == 2 and channel.engine().log.position() == written, "nothing is written again"
