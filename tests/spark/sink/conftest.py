"""What this process knows of channels that streams wrote to, and the checkpoint of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream.spark.sink import written_channels


@pytest.fixture
def other_process() -> Iterator[Callable[[], None]]:
    """Forget what this process knows, as another one does not know it; at the end of the test, too."""
    yield written_channels._known.clear
    written_channels._known.clear()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The checkpoint of a stream that has no batch yet."""
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"
