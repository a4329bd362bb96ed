"""Fixtures of the page's tests: two channels, the page that shows them, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from tests.support.browser import Served, browser, new_tab, serving
from tests.support.events import numbered, put, take


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a channel of events, ``orders``, a typed one, ``weather``, and one to change, ``clicks``."""
    place = tmp_path_factory.mktemp("page")
    with Channel(place / "orders", minimum_required_space=0) as orders:
        with orders.put_transaction() as tx:
            tx.put_many(Event(b'{"order": %d}' % i, {"source": "web"}) for i in range(1, 31))
            tx.put_many([Event(b"<script>document.title = 'stolen'</script>"), Event(bytes(range(256)))])
        take(orders, 5, "billing")
    with Channel(place / "clicks", minimum_required_space=0) as clicks:
        put(clicks, *numbered(0, 27))
    weather = Channel(place / "weather", schema=pa.schema([("city", pa.string())]), minimum_required_space=0)
    with weather, weather.put_transaction() as tx:
        tx.put_many({"city": city} for city in ("Graz", "Turku", "<b>Lyon"))
    return place


@pytest.fixture(scope="session")
def served(places: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The page of these channels, and of one that is missing; it only looks."""
    paths = [places / name for name in ("orders", "weather", "missing", "clicks")]
    with serving(tmp_path_factory.mktemp("served"), *paths) as found:
        yield found


@pytest.fixture(scope="module")  # until it ends, playwright's loop runs in this thread, and no other can
def running_browser() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def tab(running_browser: Any) -> Iterator[Any]:
    """A new tab."""
    with new_tab(running_browser) as page:
        yield page
