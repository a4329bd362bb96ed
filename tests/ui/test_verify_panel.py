"""Verify in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream.integrity.findings import Report
from spillable_stream.progress import Progress
from spillable_stream.ui import verify_panel
from spillable_stream.ui.verify_panel import Verification
from tests.support.browser import NEEDS_BROWSER, Served


def test_it_knows_how_far_it_is_and_what_was_found(places: Path) -> None:
    verification = Verification(str(places / "orders"))
    assert "healthy" in verification.run()
    assert verification.fraction == 1.0 and verification.words.endswith("read")
    assert "is not a channel" in Verification(str(places / "missing")).run()


def test_it_can_be_ended(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verification = Verification(str(places / "orders"))

    def verify(_: str, progress: Any) -> Report:
        progress(Progress("verify", 1, 4, "bytes"))
        assert (verification.fraction, verification.words) == (0.25, "1 byte of 4 bytes read")
        verification.end()
        progress(Progress("verify", 2, 4, "bytes"))
        raise AssertionError("it was ended")

    monkeypatch.setattr(verify_panel, "verify", verify)
    assert "ended" in verification.run()


@pytest.mark.slow
@NEEDS_BROWSER
def test_the_page_verifies(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/0")
    tab.get_by_role("tab", name="Verify").click()
    tab.get_by_role("button", name="Verify", exact=True).click()
    tab.locator("[data-part=report]").get_by_text("healthy").wait_for()
    assert tab.get_by_role("progressbar", name="Progress of verify").count() == 1
