"""A division: how a write's rows are divided among several channels, each of which remembers a batch with it.

A batch's name in a channel is ``QUERY/DIVISION``, as ``QUERY/4-0a1b2c3d`` of four shards, or ``QUERY/flow-0a1b2c3d``.
So a batch that was stored in some of the channels is completed by the same division only: with another one, rows would
be missing or duplicated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import md5

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import SinkBatch

__all__ = ["DividedBatches", "batch_of", "digest", "latest", "stored_otherwise"]

_NAME = re.compile(r"(.+)/((?:\d+|flow)-[0-9a-f]{8})", re.DOTALL)

DividedBatches = Mapping[str, tuple[int, str]]
"""A query's last batch, and by which division its rows were stored."""


def digest(parts: Iterable[str]) -> str:
    """Return a short text that other parts of a division do not have."""
    return md5("\0".join(parts).encode(), usedforsecurity=False).hexdigest()[:8]


def batch_of(batch: SinkBatch, division: str) -> SinkBatch:
    """Return by what a channel remembers a batch whose rows were divided."""
    return SinkBatch(f"{batch.query}/{division}", batch.batch_id)


def stored_otherwise(channel: Channel, division: str) -> DividedBatches:
    """Return a channel's last batches that were stored by another division than this one."""
    with channel.port().snapshot() as state:
        named = [(_NAME.fullmatch(name), batch_id) for name, batch_id in state.sinks.items()]
    return latest(*({m[1]: (batch_id, m[2])} for m, batch_id in named if m and m[2] != division))


def latest(*found: DividedBatches) -> DividedBatches:
    """Return the last batch of each query."""
    last: dict[str, tuple[int, str]] = {}
    for batches in found:
        for query, batch in batches.items():
            last[query] = max(batch, last.get(query, batch))
    return last
