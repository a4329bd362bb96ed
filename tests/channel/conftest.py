"""Handles with a spool, which a thread ships or a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from tests.support.faulty_store import FaultyStore
from tests.support.object_channels import stores_in_memory
from tests.support.spools import close, open_spooled, without_threads
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]


@pytest.fixture
def opened(tmp_path: Path, set_limits: SetLimits) -> Iterator[Open]:
    """Open handles with a spool, closed at the end, on stores that are dictionaries; threads ship."""
    set_limits(answer_seconds=0)
    with stores_in_memory(FaultyStore), ExitStack() as stack:

        def open_one(**options: Any) -> Channel:
            directory = options.pop("spool", tmp_path / "spool")
            channel = open_spooled(directory, **options)
            stack.callback(close, channel)
            return channel

        yield open_one


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch, opened: Open) -> Open:
    """Open such handles, of which nothing is shipped but by a flush or a close."""
    without_threads(monkeypatch)
    return opened
