"""Handles of a channel whose bucket is put back, at any moment, to any of its versions: nobody loses more than that.

No checkpoints are created, since one of a lost slot is refused (`test_checkpoints_of_replaced_channels.py`).
"""

from __future__ import annotations

import logging
import random

import pytest

import spillable_stream as ss
from spillable_stream import Channel
from spillable_stream.integrity.findings import Severity
from tests.support.events import put
from tests.support.faulty_store import Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, faulty_stores_in_memory, store_of

HANDLES = 3


def read(channel: Channel) -> list[bytes]:
    """Return the bodies that are in the channel; a handle that is told a loss reads again."""
    for _ in range(3):
        try:
            return [body for batch in channel.read() for body in batch.column("body").to_pylist()]
        except ss.UnsafeStoreError:
            continue
    raise AssertionError("a loss is told once")


class History:
    """Puts of several handles, and what of them has to be there.

    Args:
        seed: decides what happens.

    Attributes:
        due: what was acknowledged since the bucket was put back, and what was in it then.
        handles: the handles.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.handles = [self._open() for _ in range(HANDLES)]
        store = store_of(self.handles[0]).inner
        assert isinstance(store, MemoryStore)
        self._objects = store.objects
        self._versions = [dict(self._objects)]
        self.due: list[bytes] = []
        self._backs = 0
        self._count = 0

    def _open(self) -> Channel:
        return Channel(URL, commit_interval=0)

    def play(self) -> None:
        """Do one thing; raises `DataLossError` where the channel needs a repair."""
        what, number = self.random.random(), self.random.randrange(HANDLES)
        if what < 0.12:
            self._put_back()
        elif what < 0.2:
            self.handles[number].close(checkpoint=False)
            self.handles[number] = self._open()
        else:
            self._put(self.handles[number], amid=self.random.random() < 0.12)
            self._versions.append(dict(self._objects))

    def _put_back(self) -> None:
        version = self.random.choice(self._versions[-6:])
        self._objects.clear()
        self._objects.update(version)
        self._backs += 1
        with Channel(URL, readonly=True) as channel:
            self.due = read(channel)

    def _put(self, channel: Channel, *, amid: bool) -> None:
        body, backs, left = b"%d" % self._count, self._backs, self.random.randint(1, 4) if amid else 0
        self._count += 1

        def count_down(_: Request) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._put_back()

        store_of(channel).after = count_down
        try:
            put(channel, body)
        except ss.DataLossError:
            raise
        except ss.SpillableError:
            return
        finally:
            store_of(channel).after = lambda _: None
        if backs == self._backs:  # else it may have been acknowledged before
            self.due.append(body)


def require_whole(history: History) -> None:
    """Require that all handles, and a new one, see one log, in which everything is once, in order, that has to be."""
    with Channel(URL, readonly=True) as channel:
        found = read(channel)
    assert [body for body in found if body in set(history.due)] == history.due
    assert len(set(found)) == len(found)
    for handle in history.handles:
        assert read(handle) == found


def run(seed: int) -> bool:
    """Play a history, and tell whether the channel needed no repair."""
    logging.disable(logging.WARNING)
    with faulty_stores_in_memory():
        history = History(seed)
        try:
            for _ in range(history.random.randint(8, 30)):
                history.play()
            require_whole(history)
        except ss.DataLossError:
            assert not ss.repair(URL).healthy
            with Channel(URL) as channel:
                put(channel, b"behind the repair")
                found = read(channel)
            assert len(set(found)) == len(found)
            return False
        finally:
            logging.disable(logging.NOTSET)
            for handle in history.handles:
                handle.close(checkpoint=False)
        require_healthy_once_a_repair_has_recorded_what_was_lost()
    return True


def require_healthy_once_a_repair_has_recorded_what_was_lost() -> None:
    """Require that `verify` finds nothing but IDs that were lost, and that a repair of these touches no event."""
    found = ss.verify(URL)
    assert not [one for one in found.findings if one.severity is Severity.DAMAGE and not one.events]
    if not found.healthy:
        with Channel(URL, readonly=True) as channel:
            before = read(channel)
        assert not ss.repair(URL).healthy
        with Channel(URL, readonly=True) as channel:
            assert read(channel) == before
    assert ss.verify(URL).healthy


def test_whoever_puts_a_bucket_back_loses_no_more_than_that() -> None:
    assert any([run(seed) for seed in range(4)])


@pytest.mark.slow
def test_whoever_puts_a_bucket_back_loses_no_more_than_that_in_hundreds_of_histories() -> None:
    whole = [run(seed) for seed in range(4, 304)]
    assert sum(whole) > 0.6 * len(whole), "a repair is for what the writer could not say"
