"""What the tests of copies share."""

from __future__ import annotations

from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream import Channel
from tests.support.events import numbered, put, take


@pytest.fixture
def copy(path: Path, tmp_path: Path) -> Path:
    """A backup of a channel with ten events, one of which was taken."""
    with Channel(path, minimum_required_space=0, mode="0770", data_dirs=[str(tmp_path / "d")]) as channel:
        put(channel, *numbered(1, 10))
        take(channel, 1)
        ss.backup(channel, tmp_path / "copy")
    return tmp_path / "copy"
