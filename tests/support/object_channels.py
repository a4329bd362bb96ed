"""Channels in an object store that is a dictionary, whatever their addresses say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any
from unittest import mock

import pytest

from spillable_stream import Channel, UnsafeStoreError
from spillable_stream.engine.requests import Control
from spillable_stream.engine.store import object_opening, object_plans
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.engine.store.object_owners import ObjectOwners
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import TrimRecord
from spillable_stream.integrity import object_verify
from spillable_stream.objects import wrong_place
from spillable_stream.objects.checkpoints import HINT
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import LOG, slot_key
from spillable_stream.objects.store import Store
from tests.support.events import peek, put
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_logs import FakeTime
from tests.support.store_limits import limited

__all__ = [
    "URL",
    "OwnersClock",
    "Watched",
    "asked",
    "collect_now",
    "cut_off",
    "epoch_of",
    "faulty_stores_in_memory",
    "in_thread",
    "kill",
    "log_of",
    "lose_slots",
    "make_two_checkpoints",
    "owners_of",
    "put_with_an_older_hint",
    "require_told_once",
    "store_of",
    "stores_in_memory",
]

URL = "s3://bucket/orders"

_killed: list[object] = []


@contextmanager
def stores_in_memory(seen_by: Callable[[Store], Store] = lambda store: store) -> Iterator[dict[str, MemoryStore]]:
    """Keep every store in memory within the block; yields them by location.

    Args:
        seen_by: returns the store as the next handle sees it, such as one that fails.
    """
    stores: dict[str, MemoryStore] = {}

    def open_store(location: Location, *, has_answered: bool = False) -> Store:
        return seen_by(stores.setdefault(str(location), MemoryStore(str(location))))

    with (
        mock.patch.object(object_opening, "open_store", open_store),
        mock.patch.object(object_plans, "open_store", open_store),
        mock.patch.object(object_verify, "open_store", open_store),
        mock.patch.object(wrong_place, "open_store", open_store),
    ):
        yield stores


@contextmanager
def faulty_stores_in_memory() -> Iterator[list[FaultyStore]]:
    """Keep every store in memory within the block; yields them as their handles see them, in the order of the opens."""
    stores = list[FaultyStore]()

    def opened(inner: Store) -> Store:
        stores.append(FaultyStore(inner))
        return stores[-1]

    with stores_in_memory(opened):
        yield stores


def kill(channel: Channel) -> None:
    """Let go of a handle as a process does that is killed: nothing is written, so its groups look owned."""
    _killed.append(dict(channel._open.owned.consumers))  # else they would be nobody's in this process
    channel._open.owned.consumers.clear()
    channel.engine().owners._thread.end()  # type: ignore[attr-defined]
    channel._open._engine.close(forked=True)  # type: ignore[union-attr]
    channel._open.is_closed = channel._open._left = True


def store_of(channel: Channel) -> FaultyStore:
    """Return the store as this handle alone sees it, where every handle has a `FaultyStore` of its own."""
    store = channel.engine().log.store._inner  # type: ignore[attr-defined]  # the meter is between
    assert isinstance(store, FaultyStore)
    return store


def collect_now(channel: Channel) -> None:
    """Delete all slots that nobody needs any more; every group has taken what is in them."""
    with limited(worth_a_trim=1):
        make_two_checkpoints(channel)


def lose_slots(channel: Channel) -> None:
    """Put the bucket back to a version before the last two slots that a handle knows."""
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        for _ in range(2):
            put(channel, b"lost")


def require_told_once(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    """Require of a loss that a handle met by itself that it was logged, and that the next call raises it, and no other.

    Args:
        channel: the handle.
        caplog: what was logged since the loss.
    """
    (record,) = caplog.records
    assert (record.levelname, "Acknowledged events are lost" in record.message) == ("ERROR", True)
    with pytest.raises(UnsafeStoreError, match="Acknowledged events are lost"):
        put(channel, b"not stored")
    put(channel, b"stored")
    assert {b"stored", b"not stored"} & set(peek(channel, group="another")) == {b"stored"}


def make_two_checkpoints(channel: Channel) -> None:
    """Make checkpoints of two slots, the second of which holds a record that changes nothing."""
    engine = channel.engine()
    engine.checkpointing.create()
    with engine.appender.committing():
        engine.appender.append_alone(Control(FrameType.TRIM, TrimRecord(through=-1, births=0, deleted=-1)))
    engine.checkpointing.create()


class OwnersClock(FakeTime):
    """The clock of those who claim groups.

    Attributes:
        meanwhile: called at each of their sleeps; lets an owner answer, or do something else.
    """

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        Context().run(self.meanwhile)  # as a thread of its own would: not in a block of `one_look`


class Watched:
    """A lock that says when somebody comes for it, who may have to wait then.

    Args:
        lock: the lock.

    Attributes:
        came: is released once for each that comes.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.came = threading.Semaphore(0)
        self._lock = lock

    def acquire(self, *arguments: Any, **keywords: Any) -> bool:
        self.came.release()
        return self._lock.acquire(*arguments, **keywords)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def log_of(channel: Channel) -> ObjectLog:
    log = channel.engine().log
    assert isinstance(log, ObjectLog)
    return log


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def asked(store: FaultyStore) -> list[tuple[str, str]]:
    return [(request.kind, request.key) for request in store.requests]


def put_with_an_older_hint(channel: Channel) -> None:
    """Put 3 events, each with a checkpoint, and let the hint lead to the second one."""
    objects: dict[str, bytes] = store_of(channel).inner.objects  # type: ignore[attr-defined]
    hint = b""
    for number in range(3):
        put(channel, b"%d" % number)
        hint = objects.get(HINT, b"")
        channel.checkpoint()
    objects[HINT] = hint


def cut_off(channel: Channel, slot: int = 3) -> None:
    """Lose the slots from one on, as in a copy that is not complete."""
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    for key in [key for key in objects if key.startswith(LOG) and key >= slot_key(slot)]:
        del objects[key]


def owners_of(channel: Channel) -> ObjectOwners:
    """Return the owners of a handle."""
    owners = channel.engine().owners
    assert isinstance(owners, ObjectOwners)
    return owners


def epoch_of(channel: Channel, group: str = "default") -> int:
    """Return the number of a group's ownership, as a handle finds it."""
    channel.engine().follow()
    known = owners_of(channel).known(group)
    assert known is not None
    return known.epoch
