"""Reading what a channel holds, for the checker."""

from __future__ import annotations

from spillable_stream import Channel
from tests.crash.ledger import Found

__all__ = ["CONSUMERS", "contents"]

CONSUMERS = "consumers"


def contents(channel: Channel, history: str = CONSUMERS) -> Found:
    """Return what an open channel holds; nothing is taken.

    Args:
        channel: the channel.
        history: the group whose events are read: the consumers, or one that takes nothing.
    """
    bodies = _peek(channel, history)
    remaining = list(bodies) if history == CONSUMERS else list(_peek(channel, CONSUMERS))
    stats = channel.stats()
    return Found(bodies, remaining, stats.lost, stats.doubtful)


def _peek(channel: Channel, group: str) -> dict[int, bytes]:
    """Return the events that a group has yet to take, in the order in which it would."""
    consumer = channel.consumer(group)
    ranges = consumer.claim(1 << 60)
    found = {
        read.first_id + i: body
        for read in consumer.read(ranges)
        for i, body in enumerate(read.batch.column("body").to_pylist())
    }
    consumer.release(ranges)
    return found
