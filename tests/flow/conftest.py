"""What tests of patterns and of their search share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spillable_stream.flow import byte_search


@pytest.fixture(scope="module")
def any_data_is_searched() -> Iterator[None]:
    """Search little data, and data full of candidates, as much data is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_search, "_LEAST_BYTES", 1)
        patch.setattr(byte_search, "_BYTES_PER_CANDIDATE", 1)
        yield
