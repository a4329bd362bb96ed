"""Reading what a channel holds, for the checker, and what its files are, to see what an open changes."""

from __future__ import annotations

from pathlib import Path

from spillable_stream import Channel
from tests.lab.ledger import Found

__all__ = ["CONSUMERS", "changes", "contents", "files_that_count"]

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
    group = stats.groups[CONSUMERS]
    return Found(
        bodies,
        remaining,
        stats.lost,
        stats.doubtful,
        expired=group.lag - len(remaining),
        passed=group.expired_events,
        is_counted=not channel.options["memory_capacity"],
    )


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


def files_that_count(path: Path) -> dict[str, bytes]:
    """Return the files of a channel's directory but for locks, hints and the head, which any open may change."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name not in ("head", "lock") and file.suffix not in (".lock", ".position")
    }


def changes(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Return which files are not what they were."""
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
