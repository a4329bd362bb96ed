"""Draws for a notebook how far queries are."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spillable_stream.channel.figures import age_text, rate_text
from spillable_stream.spark.progress.query_report import QueryReport

__all__ = ["reports_html"]

_COLUMNS = ("query", "channel", "group", "lag", "age", "speed", "last batch", "")
_TEXT_COLUMNS = 3
_UNKNOWN = "-"


def reports_html(reports: Sequence[QueryReport]) -> str:
    """Return reports as a table of self-contained HTML, those that run first."""
    if not reports:
        return '<div style="font-size:13px">no query has made progress yet</div>'
    rows = "".join(_row("td", _cells(report)) for report in sorted(reports, key=lambda r: not r.active))
    head = _row("th", _COLUMNS)
    return f'<table style="font-size:13px;line-height:1.5;border-collapse:collapse">{head}{rows}</table>'


def _cells(report: QueryReport) -> tuple[str, ...]:
    age = report.oldest_age_seconds
    return (
        report.query or report.query_id,
        report.path or report.channel,
        report.group or _UNKNOWN,
        _UNKNOWN if report.lag_events is None else f"{report.lag_events:,}",
        _UNKNOWN if age is None else age_text(age),
        rate_text(report.events_per_second),
        f"{report.last_batch:,}" if report.last_batch >= 0 else _UNKNOWN,
        "" if report.active else "ended",
    )


def _row(tag: str, cells: Sequence[str]) -> str:
    line = "border:0;border-bottom:1px solid rgba(128,128,128,.25);padding:2px 20px 2px 0"
    sides = ["left" if i < _TEXT_COLUMNS else "right" for i in range(len(cells))]
    found = (f'<{tag} style="{line};text-align:{s}">{escape(c)}</{tag}>' for c, s in zip(cells, sides, strict=True))
    return f"<tr>{''.join(found)}</tr>"
