"""A disk that gets full."""

from __future__ import annotations

import pytest

from spillable_stream.engine import disk_room
from spillable_stream.log import disk_space
from tests.support.full_disk import DiskOf64MiB


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> DiskOf64MiB:
    """A disk of 64 MiB, at which every put looks, and every take that empties a file."""
    monkeypatch.setattr(disk_space, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(disk_room, "_EVERY_SECONDS", 0)
    return DiskOf64MiB()
