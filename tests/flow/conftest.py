"""What tests of patterns and of their search share, and the channels of a processor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.flow.patterns import byte_search
from tests.support.failing_puts import LIMITS


@pytest.fixture(scope="module")
def any_data_is_searched() -> Iterator[None]:
    """Search little data, and data full of candidates, as much data is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_search, "_LEAST_BYTES", 1)
        patch.setattr(byte_search, "_BYTES_PER_CANDIDATE", 1)
        yield


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[dict[str, Channel]]:
    found = {name: Channel(tmp_path / name, **LIMITS) for name in ("c1", "c2", "c3")}
    yield found
    for channel in found.values():
        channel.close()
