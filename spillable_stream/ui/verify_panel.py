"""Verify of a channel, with progress; it can be ended."""

from __future__ import annotations

import asyncio
from html import escape

from nicegui import ui

from spillable_stream.channel.figures import size_text
from spillable_stream.integrity.verify import verify
from spillable_stream.observe.observed_channel import FAILURES
from spillable_stream.progress import Progress
from spillable_stream.shown_value import encodable
from spillable_stream.ui import pictures

__all__ = ["Verification", "verify_panel"]


class _Ended(Exception):
    """Somebody ended the work."""


class Verification:
    """One verify, in a thread of its own.

    Attributes:
        fraction: the part that is done, 0 to 1, as far as that is known.
        words: how far it is, in words.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_ended = False
        self.fraction: float = 0.0
        self.words: str = "starting"

    def run(self) -> str:
        """Verify, and return what was found, as HTML."""
        try:
            return pictures.report(verify(self._path, progress=self._show))
        except _Ended:
            return '<p><span class="s-badge warn">ended</span> Nothing was changed.</p>'
        except FAILURES as e:
            return f'<p role="alert"><span class="s-badge bad">unknown</span> {escape(str(e))}</p>'

    def end(self) -> None:
        """End it at the next chance."""
        self._is_ended = True

    def _show(self, progress: Progress) -> None:
        if self._is_ended:
            raise _Ended
        self.fraction = progress.fraction or 0.0
        total = "" if progress.total is None else f" of {size_text(progress.total)}"
        self.words = f"{size_text(progress.done)}{total} read"


def verify_panel(path: str) -> None:
    """Lay out the panel."""
    running: list[Verification] = []

    async def start() -> None:
        verification = Verification(path)
        running.append(verification)
        begin.disable()
        end.enable()
        result.set_content("")
        timer.activate()
        try:
            result.set_content(encodable(await asyncio.to_thread(verification.run)))
        finally:
            running.clear()
            timer.deactivate()
            begin.enable()
            end.disable()
            bar.set_value(0)
            said.set_text("")

    def stop() -> None:
        for verification in running:
            verification.end()

    def refresh() -> None:
        if running:
            bar.set_value(round(running[0].fraction, 3))
            said.set_text(running[0].words)

    with ui.element("section").classes("s-card column").props('aria-label="Verify"'):
        ui.label("Reads everything in the channel, also while it is used, and changes nothing.").classes("s-soft")
        with ui.row().classes("gap-3"):
            begin = ui.button("Verify", on_click=start).props("no-caps unelevated")
            end = ui.button("End", on_click=stop).props("no-caps outline")
            end.disable()
        bar = ui.linear_progress(value=0, show_value=False, size="10px").props("rounded")
        bar.props('aria-label="Progress of verify"')
        said = ui.label("").classes("s-soft").props('aria-live="polite"')
        result = ui.html("", sanitize=False).classes("s w-full").props('aria-live="polite" data-part="report"')
    timer = ui.timer(0.2, refresh, active=False)
