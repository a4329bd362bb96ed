"""Changes in the page: each asks, and without the flag there are none (`test_page`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from tests.support.browser import NEEDS_BROWSER, serving
from tests.support.events import numbered, put, take

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]


def groups(path: Path) -> set[str]:
    with Channel(path, create=False, readonly=True) as channel:
        return set(channel.stats().groups)


def test_a_change_asks_and_is_made_or_not(path: Path, tmp_path: Path, tab: Any) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        take(channel, 4, "a")
    with serving(tmp_path, path, "--allow-changes") as served:
        tab.goto(f"{served.link}channel/0")
        tab.get_by_text("changes allowed").wait_for()
        tab.get_by_role("tab", name="Change").click()
        create = tab.locator("section[aria-label='Create a group']")
        create.get_by_label("Name").fill("b")
        create.get_by_role("button", name="Create").click()
        dialog = tab.get_by_role("dialog")
        dialog.get_by_text(f"Create the group b in {path} at earliest?").wait_for()
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="detached")
        assert groups(path) == {"a"}
        create.get_by_role("button", name="Create").click()
        dialog.get_by_role("button", name="Do it").click()
        dialog.wait_for(state="detached")  # else the next click may be one at this dialog
        tab.get_by_text("b was created at earliest.").wait_for()
        assert groups(path) == {"a", "b"}
        create.get_by_role("button", name="Create").click()
        dialog.get_by_role("button", name="Do it").click()
        tab.get_by_text("has a group 'b' already").wait_for()
