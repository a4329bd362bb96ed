"""The options in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream.options import CHANNEL, defaults
from spillable_stream.ui.option_panel import stored_options
from tests.support.browser import NEEDS_BROWSER, Served


def test_stored_options_are_the_channels(places: Path) -> None:
    found = stored_options(str(places / "orders"))
    assert found["minimum_required_space"] == 0 and found.keys() >= defaults(CHANNEL).keys()


@pytest.mark.slow
@NEEDS_BROWSER
def test_options_are_shown_with_value_and_meaning(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/0")
    tab.get_by_role("tab", name="Options").click()
    row = tab.get_by_role("row").filter(has_text="overflowCapacity").first
    row.get_by_text("100,000,000").wait_for()
    row.get_by_text("The most events on disk").wait_for()


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_channel_that_is_missing_has_none_and_says_so(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/2")
    tab.get_by_role("tab", name="Options").click()
    tab.get_by_role("alert").get_by_text("is not a channel").wait_for()
