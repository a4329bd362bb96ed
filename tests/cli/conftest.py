"""What tests of several verbs use."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel
from tests.support.events import numbered, put, take


@pytest.fixture
def filled(path: Path) -> Path:
    """A channel with twenty events, of which a group took five."""
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 20))
        take(channel, 5, "billing")
    return path
