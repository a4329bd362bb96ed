"""The pages: all channels, and one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

from nicegui import ui

from spillable_stream.counted import counted
from spillable_stream.observe.advice import Urgency, advice_on
from spillable_stream.observe.observation import Observation
from spillable_stream.shown_value import encodable
from spillable_stream.ui import pictures
from spillable_stream.ui.change_panel import change_panel
from spillable_stream.ui.changes import ChannelChanges
from spillable_stream.ui.charts import CHARTS, Chart
from spillable_stream.ui.event_panel import event_panel
from spillable_stream.ui.live import LiveHtml, shown_path
from spillable_stream.ui.option_panel import option_panel
from spillable_stream.ui.style import CSS, MEMORY
from spillable_stream.ui.verify_panel import verify_panel
from spillable_stream.ui.watch import Watch

__all__ = ["add_pages"]

_CHART_SECONDS = 2.0
_ADVICE = "What needs a look"
_MOST_CARDS = 100


def add_pages(watch: Watch, changes: ChannelChanges) -> None:
    """Add the pages to NiceGUI's application; once in a process.

    Args:
        watch: what is shown.
        changes: what may be changed.
    """

    @ui.page("/", title="spillable")
    def overview() -> None:
        with _frame("Channels", changes):
            grid = ui.element("div").classes("s-grid")
            _legend()
            parts: list[LiveHtml] = []
            laid_out: list[str] = []

            def lay_out() -> None:
                if laid_out == watch.paths():
                    return
                laid_out[:] = watch.paths()
                grid.clear()
                with grid:
                    parts[:] = [part for path in laid_out[:_MOST_CARDS] for part in _card(watch, path)]
                    if (more := len(laid_out) - _MOST_CARDS) > 0:
                        text = f"and {counted(more, 'more channel')}: give a narrower pattern, or use spillable top"
                        ui.html(text, sanitize=False).classes("s-soft")

            lay_out()
            _live(watch, parts, lay_out)

    @ui.page("/channel/{number}", title="spillable: channel")
    def one_channel(number: str) -> None:
        path = watch.path_of(int(number)) if re.fullmatch(r"[0-9]{1,6}", number) else None
        if path is None:
            with _frame("No such channel", changes):
                ui.link("All channels", "/").classes("s-link")
            return
        ui.page_title(f"spillable: {shown_path(path)}")
        with _frame(path, changes):
            _channel(watch, changes, path)


@contextmanager
def _frame(title: str, changes: ChannelChanges) -> Iterator[None]:
    """Lay out what all pages have: a bar with the way back and the colours, and the title."""
    dark = ui.dark_mode(None)  # as the browser says
    ui.colors(primary=MEMORY)
    ui.add_css(CSS)
    ui.link("Skip to the channels", "#main").classes("s-skip")
    with ui.element("header").classes("s-bar flex"):
        ui.link("spillable", "/").classes("s-link").props('aria-label="spillable: all channels"')
        allowed = "changes allowed" if changes.allowed else "read-only"
        ui.html(f'<span class="s-badge {"warn" if changes.allowed else ""}">{allowed}</span>', sanitize=False)
        ui.space()
        ui.button("Light", on_click=dark.disable).props("flat dense no-caps color=inherit")
        ui.button("Dark", on_click=dark.enable).props("flat dense no-caps color=inherit")
    with ui.element("div").classes("s-main column").props('id="main" tabindex="-1"'):
        ui.html(escape(encodable(title)), sanitize=False, tag="h1").classes("s")
        yield


def _live(watch: Watch, parts: list[LiveHtml], lay_out: Callable[[], None] = lambda: None) -> None:
    def refresh() -> None:
        lay_out()
        for part in parts:
            part.refresh()

    ui.timer(watch.interval_seconds, refresh)


def _legend() -> None:
    ui.html(
        '<div class="s-legend"><span><i class="memory"></i>in memory</span><span><i class="disk"></i>on disk</span>'
        '<span><i class="kept"></i>kept: every group has taken it</span><span>drain order: the first to be taken at '
        "the left</span></div>",
        sanitize=False,
    )


def _card(watch: Watch, path: str) -> list[LiveHtml]:
    """Lay out a channel among others, and return the parts of it that live."""

    def seen() -> Observation:
        return watch.latest(path)

    def head() -> str:
        return f'<div class="s-soft s-mono">{escape(path)}</div>{_state(seen())}'

    card = ui.element("section").classes("s-card column")
    card.props["aria-label"] = shown_path(path)
    with card:
        ui.link(shown_path(path), f"/channel/{watch.number_of(path)}").classes("s-link text-lg")
        return [
            LiveHtml(head),
            LiveHtml(lambda: _picture(seen())),
            LiveHtml(lambda: _urgent(seen()), _ADVICE),
        ]


def _state(seen: Observation) -> str:
    if seen.is_to_come:
        return '<span class="s-badge">not looked at yet</span>'
    if seen.stats is None:
        return '<span class="s-badge bad">can\'t be looked at</span>'
    kind = "typed" if seen.typed else "events"
    fill = f"{seen.stats.channel_fill_percentage:.0f}% full"
    return (
        f'<span class="s-badge good">up</span> <span class="s-badge">{kind}</span> <span class="s-badge">{fill}</span>'
    )


def _picture(seen: Observation) -> str:
    if seen.stats is None:
        return ""
    stats = seen.stats
    return f"{pictures.tiers(stats)}{pictures.drain_order(stats.drain_order)}{pictures.figures(seen)}"


def _urgent(seen: Observation) -> str:
    return pictures.advice([advice for advice in advice_on(seen) if advice.urgency is not Urgency.NOTE])


def _channel(watch: Watch, changes: ChannelChanges, path: str) -> None:
    """Lay out one channel."""

    def seen() -> Observation:
        return watch.latest(path)

    parts = [
        LiveHtml(lambda: _state(seen())),
        LiveHtml(lambda: pictures.advice(advice_on(seen())), _ADVICE),
    ]
    names = ["Now", "Events", "Options", "Verify", *(["Change"] if changes.allowed else [])]
    with ui.tabs().props('align="left" no-caps dense').classes("w-full") as tabs:
        for name in names:
            ui.tab(name)
    with ui.tab_panels(tabs, value="Now").classes("w-full").props("keep-alive"):
        with ui.tab_panel("Now"), ui.column().classes("w-full gap-5"):
            parts += _now(watch, path, seen)
        with ui.tab_panel("Events"):
            event_panel(path)
        with ui.tab_panel("Options"):
            option_panel(path)
        with ui.tab_panel("Verify"):
            verify_panel(path)
        if changes.allowed:
            with ui.tab_panel("Change"):
                change_panel(changes, path, lambda: _group_names(seen()))
    _live(watch, parts)


def _group_names(seen: Observation) -> list[str]:
    return sorted(seen.stats.groups) if seen.stats is not None else []


def _now(watch: Watch, path: str, seen: Callable[[], Observation]) -> list[LiveHtml]:
    """Lay out what a channel holds now and did lately, and return the parts that live."""
    parts = []
    with _section("Fill and drain order"):
        parts.append(LiveHtml(lambda: _picture(seen())))
        _legend()
    with ui.element("div").classes("s-grid wide"):
        for chart in CHARTS:
            _chart(watch, path, chart)
        with _section("Recent spills"):
            parts.append(LiveHtml(lambda: pictures.spills(watch.history.spills(path))))
    with _section("Groups"):
        parts.append(LiveHtml(lambda: pictures.groups(seen()) + pictures.workers(seen())))
    return parts


@contextmanager
def _section(title: str) -> Iterator[None]:
    with ui.element("section").classes("s-card column").props(f'aria-label="{title}"'):
        ui.html(title, sanitize=False, tag="h2").classes("s")
        yield


def _chart(watch: Watch, path: str, chart: Chart) -> None:
    with _section(chart.title):
        samples = watch.history.samples(path)
        drawn = ui.echart(chart.options(samples)).classes("s-chart").props('role="img"')
        drawn.props["aria-label"] = chart.words(samples)

        def refresh() -> None:
            samples = watch.history.samples(path)
            drawn.options["series"] = chart.options(samples)["series"]
            drawn.props["aria-label"] = chart.words(samples)
            drawn.update()

        ui.timer(_CHART_SECONDS, refresh)
