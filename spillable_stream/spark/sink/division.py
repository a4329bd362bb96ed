"""A division: how a write's rows are divided among several channels, each of which remembers a batch with it.

A batch's name in a channel is ``QUERY/DIVISION``, as ``QUERY/4-0a1b2c3d`` of four shards, or ``QUERY/flow-0a1b2c3d``;
and ``QUERY`` of a write whose rows all go to that channel. So a batch that was stored in some of the channels is
completed by the same division only: with another one, rows would be missing or duplicated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

from spillable_stream.engine.port import SinkBatch

if TYPE_CHECKING:
    from spillable_stream.channel.channel import Channel

__all__ = [
    "Answer",
    "StoredBatches",
    "answer_of",
    "batch_of",
    "digest",
    "division_with_places",
    "latest",
    "of_query",
    "shown_channels",
    "stored_batches",
    "stored_otherwise",
    "what_to_do",
]

_DIVISION = re.compile(r"(?:\d+|flow)-[0-9a-f]{8}")

StoredBatches = Mapping[str, int]
"""The numbers of the last batches that a channel has, by the names by which it remembers them."""


class Answer(NamedTuple):
    """What a channel says that was asked for its batches.

    Args:
        channel: its UUID.
        batches: the last batches that it has.
    """

    channel: str
    batches: StoredBatches


def digest(parts: Iterable[str]) -> str:
    """Return a short text that other parts of a division do not have."""
    return md5("\0".join(parts).encode(), usedforsecurity=False).hexdigest()[:8]


def batch_of(batch: SinkBatch, division: str) -> SinkBatch:
    """Return by what a channel remembers a batch whose rows were divided."""
    return SinkBatch(f"{batch.query}/{division}", batch.batch_id)


def stored_batches(channel: Channel) -> StoredBatches:
    """Return the last batches that a channel has."""
    with channel.port().snapshot() as state:
        return dict(state.sinks)


def answer_of(channel: Channel) -> Answer:
    """Return which channel it is, and the last batches that it has."""
    return Answer(channel.uuid, stored_batches(channel))


def latest(*found: StoredBatches) -> StoredBatches:
    """Return the last batches that several channels have."""
    last: dict[str, int] = {}
    for batches in found:
        for name, batch_id in batches.items():
            last[name] = max(batch_id, last.get(name, batch_id))
    return last


def stored_otherwise(found: StoredBatches, batch: SinkBatch, division: str | None) -> SinkBatch | None:
    """Return by what a query's last batch by another division is remembered; None if that is earlier than the batch.

    Args:
        found: the last batches that channels have.
        batch: the query's ID, and the batch's number.
        division: how the batch is divided: "" if it is not; None if none of its rows are for these channels.
    """
    named = [SinkBatch(name, batch_id) for name, batch_id in found.items() if batch_id >= batch.batch_id]
    others = [one for one in named if (by := _division(one.query, batch.query)) is not None and by != division]
    return max(others, key=lambda one: one.batch_id, default=None)


def what_to_do(batch: SinkBatch, last: int, given: str) -> str:
    """Return what a refusal of a batch says: how to complete it, or that it is none that comes again.

    Spark repeats the last batch that it planned, and no earlier one.

    Args:
        batch: the query's ID, and the batch's number.
        last: the number of the last batch that channels have by another division.
        given: what it was divided by.
    """
    if last > batch.batch_id:
        return (
            f"The batch {batch.batch_id} is an earlier one, as from an old copy of a checkpoint: use a new "
            "checkpointLocation, or another txnAppId"
        )
    return f"The batch {batch.batch_id} comes again: run it with {given} that it had, and change that when it is done"


def of_query(found: StoredBatches, query: str) -> StoredBatches:
    """Return the last batches of one query."""
    return {name: batch_id for name, batch_id in found.items() if _division(name, query) is not None}


def division_with_places(name: str, query: str) -> str | None:
    """Return the division in the name of a query's batch if it says where its channels are, as a flow's does."""
    division = _division(name, query) or ""
    return division if division.startswith("flow-") else None


def shown_channels(kind: str, names: Sequence[str]) -> str:
    """Return what messages call channels that share a write, such as ``the shards 0, 2``."""
    return f"the {kind}{'' if len(names) == 1 else 's'} {', '.join(names)}"


def _division(name: str, query: str) -> str | None:
    """Return the division in the name of a query's batch, "" without one; None for a batch of another query."""
    if name == query:
        return ""
    division = name.removeprefix(f"{query}/")
    return division if division != name and _DIVISION.fullmatch(division) else None
