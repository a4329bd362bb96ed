"""A look at the events of a channel, by ID or by time."""

from __future__ import annotations

import asyncio
from html import escape

from nicegui import ui

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.event_table import EventTable
from spillable_stream.channel.place import parse_place
from spillable_stream.observe.observed_channel import FAILURES
from spillable_stream.shown_value import encodable
from spillable_stream.ui import pictures

__all__ = ["event_panel", "look"]

_MOST_EVENTS = 200


def look(path: str, start: str, n: int) -> EventTable:
    """Return events of a channel, which is opened read-only for it.

    Args:
        path: the channel.
        start: the first one, in words; "" for the last ones.
        n: how many at most.

    Raises:
        SpillableError: they can't be read, or ``start`` can't be used.
    """
    n = max(1, min(n, _MOST_EVENTS))
    with Channel(path, create=False, readonly=True) as channel:
        return channel.head(n, parse_place(start)) if start.strip() else channel.tail(n)


def event_panel(path: str) -> None:
    """Lay out the panel."""

    async def show(start: str) -> None:
        button.disable()
        try:
            found = await asyncio.to_thread(look, path, start, int(count.value or 20))
            table.set_content(pictures.events(found))
            shown.clear()
            shown.extend(found.ids)
        except FAILURES as e:
            table.set_content(f'<p role="alert">{escape(encodable(str(e)))}</p>')
            shown.clear()
        finally:
            button.enable()
        following.set_enabled(bool(shown))

    async def show_following() -> None:
        place.set_value(str(shown[-1] + 1))
        await show(place.value)

    shown: list[int] = []
    with ui.element("section").classes("s-card column").props('aria-label="Events"'):
        with ui.row().classes("items-end gap-3 w-full"):
            place = (
                ui.input("From", placeholder="ID, 2026-11-25 14:30, 15m, earliest")
                .props("outlined dense")
                .classes("w-72")
            )
            place.props('aria-label="From: an ID, a time, how long ago, or earliest; empty for the last events"')
            place.on("keydown.enter", lambda: show(place.value or ""))
            count = ui.number("How many", value=20, min=1, max=_MOST_EVENTS, precision=0).props("outlined dense")
            count.classes("w-28")
            button = ui.button("Show", on_click=lambda: show(place.value or "")).props("no-caps unelevated")
            ui.button("Last events", on_click=lambda: show("")).props("no-caps outline")
            following = ui.button("Following", on_click=show_following).props("no-caps outline")
            following.disable()
        ui.label("A look takes nothing: groups still get these events.").classes("s-soft")
        table = ui.html("", sanitize=False).classes("s w-full").props('aria-live="polite" data-part="events"')
