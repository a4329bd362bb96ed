"""A disk that gets full, handles of a channel in a store each with its own view, and deliveries that fail once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.engine import deliveries
from spillable_stream.engine.local import disk_room
from spillable_stream.log import disk_space
from tests.support.faulty_store import FaultyStore
from tests.support.full_disk import DiskOf64MiB
from tests.support.object_channels import URL, stores_in_memory


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> DiskOf64MiB:
    """A disk of 64 MiB, at which every put looks, and every take that empties a file."""
    monkeypatch.setattr(disk_space, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(disk_room, "_EVERY_SECONDS", 0)
    return DiskOf64MiB()


@pytest.fixture
def open_handle() -> Iterator[Callable[..., Channel]]:
    """Open handles of one channel in an object store in memory; the store of each fails and counts by itself."""
    with stores_in_memory(FaultyStore), ExitStack() as stack:

        def open_handle(url: str = URL, **options: Any) -> Channel:
            options = {"commit_interval": 0, "gc_delay": 0, "checkpoint_on_close": False, **options}
            return stack.enter_context(Channel(url, **options))

        yield open_handle


@pytest.fixture
def no_second_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no delivery be tried again but where a test says so."""
    monkeypatch.setattr(deliveries, "_AGAIN_SECONDS", 3600.0)
