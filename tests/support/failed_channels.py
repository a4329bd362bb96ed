"""Channels that a storage failure has closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.errors import CommitOutcomeUnknownError
from tests.support.broken_disk import SYNCS, broken_disk
from tests.support.events import put

__all__ = ["failed_channel"]


def failed_channel(path: Path) -> Channel:
    """Return an open channel whose log a storage failure has closed."""
    with broken_disk(path) as disk:
        channel = Channel(path, minimum_required_space=0)
        put(channel, b"1")
        disk.breaks(calls=(*SYNCS, "open"))
        with pytest.raises(CommitOutcomeUnknownError):
            put(channel, b"2")
    return channel
