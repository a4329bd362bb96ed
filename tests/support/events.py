"""Putting and taking in few words."""

from __future__ import annotations

from collections.abc import Iterable

from spillable_stream import Channel, Event
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import LostRecord


def put(channel: Channel, *bodies: bytes) -> tuple[int, int]:
    """Put bodies as one transaction and return the first and the last write-order ID."""
    with channel.put_transaction() as tx:
        tx.put_many(Event(b) for b in bodies)
    return tx.committed.first_id, tx.committed.last_id


def take(channel: Channel, limit: int = 10_000, group: str = "default") -> list[bytes]:
    """Take and commit up to ``limit`` bodies."""
    with channel.take_transaction(group) as tx:
        return [e.body for e in tx.take_many(limit)]


def lose(channel: Channel, first: int, last: int) -> None:
    """Report events as lost."""
    with channel.port().snapshot() as state:
        lost: LostRecord = {
            "lost": [(first, last)], "doubtful": [], "next": state.next_id, "groups": {}, "kept": True,
        }  # fmt: skip
    channel.engine().commit(Control(FrameType.LOST, lost))


def peek(channel: Channel, limit: int = 10_000, group: str = "default") -> list[bytes]:
    """Return up to ``limit`` bodies from the head of the queue and leave them there."""
    with channel.take_transaction(group) as tx:
        bodies = [e.body for e in tx.take_many(limit)]
        tx.rollback()
        return bodies


def numbered(first: int, count: int) -> list[bytes]:
    """Return bodies that are their numbers."""
    return [b"%d" % i for i in range(first, first + count)]


def ids(channel: Channel, group: str = "default") -> Iterable[int]:
    """Return the write-order IDs that are in the queue, in order."""
    with channel.take_transaction(group) as tx:
        found = [e.write_order_id for e in tx.take_many(10_000)]
        tx.rollback()
        return found
