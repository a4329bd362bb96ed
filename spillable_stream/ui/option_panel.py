"""The options of a channel, with their meaning."""

from __future__ import annotations

import asyncio
from html import escape
from typing import Any

from nicegui import ui

from spillable_stream.channel.channel import Channel
from spillable_stream.observe.observed_channel import FAILURES
from spillable_stream.shown_value import encodable
from spillable_stream.ui import pictures
from spillable_stream.ui.changes import changeable_options

__all__ = ["option_panel", "stored_options"]


def stored_options(path: str) -> dict[str, Any]:
    """Return the options that a channel has, by keyword name; the channel is opened read-only for it."""
    with Channel(path, create=False, readonly=True) as channel:
        return {**channel.options}


def option_panel(path: str) -> None:
    """Lay out the panel."""

    async def show() -> None:
        try:
            stored = await asyncio.to_thread(stored_options, path)
            table.set_content(pictures.options(changeable_options(), stored))
        except FAILURES as e:
            table.set_content(f'<p role="alert">{escape(encodable(str(e)))}</p>')

    with ui.element("section").classes("s-card column").props('aria-label="Options"'):
        ui.button("Read again", on_click=show).props("no-caps outline dense").classes("self-start px-3")
        table = ui.html("", sanitize=False).classes("s w-full")
    ui.timer(0, show, once=True)
