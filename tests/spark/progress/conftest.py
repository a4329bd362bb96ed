"""A listener without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spillable_stream.spark.progress.query_listener import QueryListener


@pytest.fixture
def alone() -> Iterator[QueryListener]:
    """A listener without Spark."""
    listener = QueryListener(None, None, {})
    yield listener
    listener._close_channels()
