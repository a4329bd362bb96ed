"""Parts of a page that show what is there now, and change only where that does."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from spillable_stream.shown_value import encodable

__all__ = ["LiveHtml", "shown_path"]


class LiveHtml:
    """A piece of HTML that is drawn again and again; the browser hears of it only if it differs.

    Args:
        draw: returns the HTML, everything in it escaped.
        label: the name of the region that tells a screen reader when it changes; "" for none.
    """

    def __init__(self, draw: Callable[[], str], label: str = "") -> None:
        self._draw = draw
        self._drawn = encodable(draw())
        self._html = ui.html(self._drawn, sanitize=False).classes("s w-full")
        if label:
            self._html.props(f'role="region" aria-live="polite" aria-label="{label}"')

    def refresh(self) -> None:
        """Draw it again."""
        drawn = encodable(self._draw())
        if drawn != self._drawn:
            self._drawn = drawn
            self._html.set_content(drawn)


def shown_path(path: str) -> str:
    """Return the last part of a channel's path: what people call it."""
    return encodable(path.rstrip("/").rpartition("/")[2] or path)
