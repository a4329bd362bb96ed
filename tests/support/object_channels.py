"""Channels in an object store that is a dictionary, whatever their addresses say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from spillable_stream import Channel
from spillable_stream.engine import object_opening, object_plans
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import Store
from tests.support.memory_store import MemoryStore

__all__ = ["URL", "kill", "stores_in_memory"]

URL = "s3://bucket/orders"


@contextmanager
def stores_in_memory(seen_by: Callable[[Store], Store] = lambda store: store) -> Iterator[dict[str, MemoryStore]]:
    """Keep every store in memory within the block; yields them by location.

    Args:
        seen_by: returns the store as the next handle sees it, such as one that fails.
    """
    stores: dict[str, MemoryStore] = {}

    def open_store(location: Location, provider: str = "") -> Store:
        return seen_by(stores.setdefault(str(location), MemoryStore(str(location))))

    with (
        mock.patch.object(object_opening, "open_store", open_store),
        mock.patch.object(object_plans, "open_store", open_store),
    ):
        yield stores


def kill(channel: Channel) -> None:
    """Let go of a handle as a process does that is killed: nothing is written, so its groups look owned."""
    channel._consumers.clear()
    channel._engine.close(forked=True)  # type: ignore[union-attr]
    channel._closed = channel._left = True
