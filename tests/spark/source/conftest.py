"""The channels of a set, in a directory and in a store, and the sources that read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark.sets import Open, Source, channels_at, place, set_readers


@pytest.fixture(params=["directory", "store"])
def open_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    with channels_at(place(request.param, tmp_path)) as open_at:
        yield open_at


@pytest.fixture
def source(open_at: Open, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    with set_readers(open_at, monkeypatch) as source:
        yield source
