"""A store in memory, at the address of every channel of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with stores_in_memory() as stores:
        stores[URL] = MemoryStore(URL)
        yield stores[URL]
