"""A store in memory, at the address of every channel of these tests, and writers that are cut short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spillable_stream.engine.store import object_appends
from spillable_stream.objects.store import StoreError
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with stores_in_memory() as stores:
        stores[URL] = MemoryStore(URL)
        yield stores[URL]


@pytest.fixture
def no_word_of_void_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each writer be killed, or the store refuse it, before it could say that its slot is void."""

    def refuse(*_: object) -> None:
        raise StoreError("refused")

    monkeypatch.setattr(object_appends, "declare_void", refuse)
