"""Parts of the page that live."""

from __future__ import annotations

from typing import Any

import pytest

from spillable_stream.ui import live
from spillable_stream.ui.live import LiveHtml, shown_path


class _Html:
    """A stand-in for NiceGUI's element, which remembers what the browser is told."""

    def __init__(self, content: str, **_: object) -> None:
        self.told = [content]
        self.given: list[str] = []

    def classes(self, _: str) -> _Html:
        return self

    def props(self, given: str) -> None:
        self.given.append(given)

    def set_content(self, content: str) -> None:
        self.told.append(content)


def test_the_browser_hears_of_what_differs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(live.ui, "html", lambda *a, **k: made.append(_Html(*a, **k)) or made[-1])
    drawn = iter(["a", "a", "b", "b"])
    part = LiveHtml(lambda: next(drawn), "Advice")
    for _ in range(3):
        part.refresh()
    assert made[0].told == ["a", "b"]
    assert made[0].given == ['role="region" aria-live="polite" aria-label="Advice"']


def test_a_channel_is_called_by_the_last_part_of_its_path() -> None:
    assert [shown_path(p) for p in ("/data/orders", "/data/orders/", "s3://bucket/orders", "orders")] == ["orders"] * 4
