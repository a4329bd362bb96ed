"""The page in a real browser: it lives, it says in words what it shows, and it can be used without a mouse."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from tests.support.browser import NEEDS_BROWSER, Served, new_tab, serving
from tests.support.events import numbered, put, take

pytestmark = NEEDS_BROWSER


def test_the_fill_moves_without_a_reload(served: Served, places: Path, tab: Any) -> None:
    tab.goto(served.link)
    card = tab.locator("section[aria-label=clicks]")
    card.get_by_text("27 of 100M").wait_for()
    tab.evaluate("window.untouched = true")
    with Channel(places / "clicks", create=False) as channel:
        put(channel, *numbered(0, 100))
        card.get_by_text("127 of 100M").wait_for()
        take(channel, 100)
        card.get_by_text("27 of 100M").wait_for()
    assert tab.evaluate("window.untouched")


def test_a_channel_that_is_missing_is_one_card_that_says_why(served: Served, tab: Any) -> None:
    tab.goto(served.link)
    missing = tab.locator("section[aria-label=missing]")
    missing.get_by_text("is not a channel: it is missing").wait_for()
    missing.get_by_text("Check the path").wait_for()


def test_a_channel_whose_name_is_not_utf_8_keeps_no_other_from_the_page(tmp_path: Path, running_browser: Any) -> None:
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/strange\xff")
    for path in (strange, tmp_path / "plain"):
        Channel(path, minimum_required_space=0).close()
    with serving(tmp_path, tmp_path / "*") as served, new_tab(running_browser) as page:
        page.goto(served.link)
        page.locator("section[aria-label=plain]").get_by_text("up", exact=True).wait_for()
        page.get_by_role("link", name="strange").click()
        page.get_by_role("heading", level=1).get_by_text("strange").wait_for()


@pytest.mark.slow
def test_a_channel_has_charts_groups_and_the_way_back_by_keyboard(served: Served, tab: Any) -> None:
    tab.goto(served.link)
    tab.get_by_role("link", name="orders", exact=True).focus()
    tab.keyboard.press("Enter")
    tab.get_by_role("heading", level=1).get_by_text("orders").wait_for()
    tab.get_by_role("table").get_by_text("billing").wait_for()
    label = tab.locator(".s-chart").first.get_attribute("aria-label")
    assert label.startswith("Events put and taken a second")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the channels"
    tab.get_by_role("tab", name="Now").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    tab.get_by_role("button", name="Last events").wait_for()
    tab.get_by_role("link", name="spillable: all channels").click()
    tab.get_by_role("heading", name="Channels").wait_for()


@pytest.mark.slow
def test_every_control_has_a_name_and_the_page_a_language_and_landmarks(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/0")
    tab.get_by_role("tab", name="Events").click()
    tab.get_by_role("button", name="Last events").wait_for()
    assert tab.locator("html").get_attribute("lang") == "en-US"
    assert tab.get_by_role("main").count() == 1 and tab.get_by_role("heading", level=1).count() == 1
    unnamed = tab.evaluate(
        """() => [...document.querySelectorAll('button, a, input, [role=meter], [role=img], [role=tab]')]
        .filter(e => e.getClientRects().length && !(e.innerText || e.getAttribute('aria-label')
          || document.querySelector(`label[for="${e.id}"]`) || e.closest('label')?.innerText))
        .map(e => e.outerHTML)"""
    )
    assert unnamed == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_as_light_or_dark_as_the_browser_wants_until_somebody_chooses(
    served: Served, running_browser: Any, scheme: str
) -> None:
    grounds = {"light": "rgb(244, 246, 248)", "dark": "rgb(18, 22, 28)"}
    ground = "getComputedStyle(document.body).backgroundColor"
    with new_tab(running_browser, color_scheme=scheme) as page:
        page.goto(served.link)
        page.get_by_role("heading", name="Channels").wait_for()
        assert page.evaluate(ground) == grounds[scheme]
        other = "dark" if scheme == "light" else "light"
        page.get_by_role("button", name=other.capitalize()).click()
        page.wait_for_function(f"{ground} === '{grounds[other]}'")


def test_on_a_narrow_screen_every_bar_is_seen_and_no_text_leaves_its_card(served: Served, running_browser: Any) -> None:
    with new_tab(running_browser, viewport={"width": 320, "height": 600}) as page:
        page.goto(served.link)
        page.locator("section[aria-label=clicks] .s-meter").first.wait_for()
        widths = page.locator(".s-meter").evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")
        assert min(widths) > 100
        beyond = page.locator(".s-card").evaluate_all(
            "cards => cards.flatMap(card => [...card.querySelectorAll('.s-tier > *')].filter("
            "e => e.getBoundingClientRect().right > card.getBoundingClientRect().right).map(e => e.outerHTML))"
        )
        assert beyond == []


@pytest.mark.slow
def test_a_number_that_is_not_a_channels_is_said_so(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/99")
    tab.get_by_text("No such channel").wait_for()


def test_without_the_flag_there_is_nothing_to_change(served: Served, tab: Any) -> None:
    tab.goto(f"{served.link}channel/0")
    tab.get_by_text("read-only").wait_for()
    assert tab.get_by_role("tab", name="Change").count() == 0
