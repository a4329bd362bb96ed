"""A look at events in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream import DataLossError, NotAChannelError, OptionError
from spillable_stream.ui.event_panel import look
from tests.support.browser import NEEDS_BROWSER, Served


def test_events_are_looked_at_by_id_by_time_and_from_the_end(places: Path) -> None:
    orders = str(places / "orders")
    assert look(orders, "20", 3).ids == [20, 21, 22]
    assert look(orders, "2h", 2).ids == look(orders, "earliest", 2).ids
    assert look(orders, "", 10**9).ids[-1] >= 32 and len(look(orders, "", 0)) == 1


def test_what_cannot_be_looked_at_is_an_error(places: Path) -> None:
    with pytest.raises(OptionError):
        look(str(places / "orders"), "somewhere", 3)
    with pytest.raises((DataLossError, OptionError)):
        look(str(places / "orders"), "1", 3)
    with pytest.raises(NotAChannelError):
        look(str(places / "missing"), "", 3)


@pytest.mark.slow
@NEEDS_BROWSER
def test_an_event_is_found_by_its_id_and_its_body_is_shown_and_not_run(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/0")
    tab.get_by_role("tab", name="Events").click()
    tab.get_by_label("From", exact=False).first.fill("20")
    tab.get_by_role("button", name="Show").click()
    events = tab.locator("[data-part=events]")
    events.get_by_text('{"order": 20}').first.click()
    events.get_by_text('"order": 20', exact=False).nth(1).wait_for()
    assert events.locator("tbody > tr").first.locator("td").first.inner_text() == "20"
    events.get_by_text("<script>").first.wait_for()
    assert "stolen" not in tab.title()
    tab.get_by_role("button", name="Following").click()
    events.get_by_text("There are no events here").or_(events.get_by_text("looked at, not taken")).first.wait_for()


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_place_that_is_none_is_said_so(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/0")
    tab.get_by_role("tab", name="Events").click()
    tab.get_by_label("From", exact=False).first.fill("somewhere")
    tab.keyboard.press("Enter")
    tab.get_by_role("alert").get_by_text("give earliest, latest, a write-order ID").wait_for()


@pytest.mark.slow
@NEEDS_BROWSER
def test_rows_of_a_typed_channel_are_a_table_of_its_columns(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/1")
    tab.get_by_role("tab", name="Events").click()
    tab.get_by_role("button", name="Last events").click()
    events = tab.locator("[data-part=events]")
    events.get_by_role("columnheader", name="city").wait_for()
    assert events.locator("tbody > tr").last.inner_text().split("\t") == ["3", "<b>Lyon"]
