"""Commits of threads at once: each request for itself, in as few appends as can be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    Event,
    StorageError,
)
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem, nth
from tests.support.threads import in_threads

Open = Callable[..., Channel]


def while_the_lock_is_held(channel: Channel, count: int, work: Callable[[int], Any]) -> list[BaseException | None]:
    """Run ``work`` in threads that all wait for the channel's lock, then free it."""
    engine = channel.engine()
    blocker = FileLock.open(FileSystem(), engine.layout.lock)
    assert blocker.try_acquire()

    def free() -> None:
        # One thread waits for the lock with its own ticket; the others wait behind it.
        while engine.committer.group_commit.waiting() < count - 1:
            time.sleep(0.001)
        blocker.close()

    freer = threading.Thread(target=free)
    freer.start()
    raised = in_threads(count, work)
    freer.join()
    return raised


def test_threads_that_commit_at_once_share_one_sync(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    fs.calls.clear()
    assert while_the_lock_is_held(channel, 8, lambda i: put(channel, *[b"%d" % i] * 10)) == [None] * 8
    assert fs.count("sync", "log") == 2  # of the thread that came first, and of the other seven
    bodies = peek(channel)
    assert sorted(bodies) == sorted(b"%d" % i for i in range(8) for _ in range(10))
    assert all(len(set(bodies[i : i + 10])) == 1 for i in range(0, 80, 10)), "transactions stay whole"


def test_a_request_that_is_refused_leaves_its_group_alone(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=100, keep_alive=0)
    raised = while_the_lock_is_held(channel, 8, lambda i: put(channel, *[b"%d" % i] * (200 if i == 3 else 10)))
    assert [type(e).__name__ for e in raised if e] == ["PutTooLargeError"]
    assert len(peek(channel)) == 70


def test_a_request_that_cannot_be_encoded_leaves_its_group_alone(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=0)

    def work(i: int) -> None:
        with channel.put_transaction() as tx:
            tx.put_many(Event(b"%d" % i) for _ in range(10))
            if i == 3:
                tx.producer = NumberedBatch("\ud800", Numbers(1, 1))

    raised = while_the_lock_is_held(channel, 8, work)
    assert [type(e).__name__ for e in raised if e] == ["UnicodeEncodeError"]
    assert sorted(peek(channel)) == sorted(b"%d" % i for i in range(8) if i != 3 for _ in range(10))
    channel.close()
    (channel.path / "head").unlink()
    assert len(peek(open_channel())) == 70


def test_a_failed_sync_fails_every_commit_of_its_group(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    with fs.failing(nth("sync", 2, "log")):
        raised = while_the_lock_is_held(channel, 8, lambda i: put(channel, b"%d" % i))
    assert [type(e) for e in raised if e] == [StorageError] * 7
    assert len(peek(channel)) == 1
    put(channel, b"later")
    assert len(peek(channel)) == 2


def test_an_interrupted_wait_withdraws_the_commit(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a commit waits for the lock: it is not committed later behind the caller's back."""
    channel = open_channel()
    engine = channel.engine()

    class Interrupted:
        def locked(self) -> bool:
            return False

        def __enter__(self) -> None:
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None:
            """Never reached."""

    real = engine.committer.group_commit._lead
    engine.committer.group_commit._lead = Interrupted()  # type: ignore[assignment]
    tx = channel.put_transaction()
    tx.begin()
    tx.put(Event(b"withdrawn"))
    with pytest.raises(KeyboardInterrupt):
        tx.commit()
    tx.rollback()
    engine.committer.group_commit._lead = real
    put(channel, b"x")
    assert peek(channel) == [b"x"]


def test_a_put_in_a_full_channel_wakes_when_a_take_came_right_after_the_refusal(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillable_stream import ChannelFullError
    from spillable_stream.engine.group_commit import GroupCommit

    channel, other = open_channel(overflow_capacity=5, keep_alive=3600), open_channel()  # so a wait would not end
    put(channel, *numbered(0, 5))
    real = GroupCommit.submit

    def submit(commits: GroupCommit, request: Any) -> Any:
        try:
            return real(commits, request)
        except ChannelFullError:
            monkeypatch.undo()
            take(other, 3)
            raise

    monkeypatch.setattr(GroupCommit, "submit", submit)
    put(channel, b"5")
