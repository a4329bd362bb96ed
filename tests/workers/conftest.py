"""A channel of ten events, and one for those that keep failing."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel
from tests.support.events import put


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    channel = Channel(tmp_path / "c", minimum_required_space=0)
    put(channel, *(b"%d" % i for i in range(10)))
    return channel


@pytest.fixture
def dead(tmp_path: Path) -> Channel:
    return Channel(tmp_path / "dead", minimum_required_space=0)
