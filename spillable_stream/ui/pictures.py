"""Draws channels as HTML: each picture says in words, for those who don't see it, what it shows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from html import escape
from itertools import groupby
from typing import Any

from spillable_stream.channel.event_table import EventTable, body_text
from spillable_stream.channel.figures import age_text, rate_text, short_text, size_text
from spillable_stream.channel.stats import ChannelStats, TierStats
from spillable_stream.counted import counted
from spillable_stream.integrity.findings import Report
from spillable_stream.observe.advice import Advice
from spillable_stream.observe.drain_strip import strip_cells
from spillable_stream.observe.history import Spill
from spillable_stream.observe.observation import Observation
from spillable_stream.options import Option

__all__ = ["advice", "drain_order", "events", "figures", "groups", "options", "report", "spills", "tiers", "workers"]

_MOST_RUNS = 60
_STRIP_CELLS = 200
_SAID_RUNS = 5
_MOST_BODY_BYTES = 1 << 16
_HEX_BYTES = 1024
_MOST_FINDINGS = 50
_MOST_SPILLS = 5
_MOST_ROWS = 100
_UNKNOWN = "-"


def tiers(stats: ChannelStats) -> str:
    """Return a bar for each tier, one for what is kept, and one for what waits until it is due."""
    bars = [_tier("memory", stats.memory), _tier("disk", stats.disk)]
    if (kept := stats.kept).events:
        share = kept.events / (kept.events + stats.channel_size)
        bars.append(_bar("kept", share, f"{counted(kept.events, 'event')} · {size_text(kept.payload_bytes)}"))
    if (delayed := stats.delayed).events:
        share = delayed.events / (delayed.events + stats.channel_size)
        bars.append(_bar("delayed", share, f"{counted(delayed.events, 'event')} · {size_text(delayed.payload_bytes)}"))
    return "".join(bars)


def _tier(name: str, tier: TierStats) -> str:
    if not tier.event_capacity and not tier.events:
        return _bar(name, 0.0, "none")
    share = tier.events / tier.event_capacity if tier.event_capacity else 1.0
    if tier.byte_capacity:
        share = max(share, tier.payload_bytes / tier.byte_capacity)
    size = size_text(tier.payload_bytes)
    return _bar(name, share, f"{tier.events:,} of {short_text(tier.event_capacity)} · {size}")


def _bar(name: str, share: float, text: str) -> str:
    percent = 100 * min(1.0, share)
    width = f"max(3px, {percent:.4g}%)" if share else "0"  # a little is seen, too
    return (
        f'<div class="s-tier"><span>{name}</span><div class="s-meter" role="meter" aria-label="{name}" '
        f'aria-valuemin="0" aria-valuemax="100" aria-valuenow="{percent:.0f}" aria-valuetext="{escape(text)}">'
        f'<span class="{name}" style="width:{width}"></span></div><span>{escape(text)}</span></div>'
    )


def drain_order(runs: Sequence[int]) -> str:
    """Return the runs of events as a strip; takes start at its left end."""
    words = ", then ".join(map(_run, runs[:_SAID_RUNS])) or "no events"
    if (more := len(runs) - _SAID_RUNS) > 0:
        words += f", then {counted(more, 'more run')}"
    if len(runs) <= _MOST_RUNS:
        cells = "".join(_cell(run > 0, abs(run), _run(run)) for run in runs)
    else:
        found = ((is_memory, len(list(same))) for is_memory, same in groupby(strip_cells(runs, _STRIP_CELLS)))
        cells = "".join(_cell(is_memory, count) for is_memory, count in found)
    strip = f'<div class="s-strip" role="img" aria-label="drain order: {words}">{cells}</div>'
    return f'<div class="s-tier s-drain"><span>drain order</span>{strip}</div>'


def _cell(is_memory: bool, width: int, title: str = "") -> str:
    return f'<span class="{"memory" if is_memory else "disk"}" style="flex:{width} 1 0" title="{title}"></span>'


def _run(run: int) -> str:
    return f"{counted(abs(run), 'event')} {'in memory' if run > 0 else 'on disk'}"


def figures(seen: Observation) -> str:
    """Return the rates, the lag and the age of a channel as a list of figures."""
    stats, rates = seen.stats, seen.rates
    if stats is None:
        return ""
    found = {
        "put": _UNKNOWN if rates is None else rate_text(rates.puts),
        "take": _UNKNOWN if rates is None else rate_text(rates.takes),
        "largest lag": _UNKNOWN if seen.largest_lag is None else short_text(seen.largest_lag),
        "oldest": _UNKNOWN if seen.oldest_age_seconds is None else age_text(seen.oldest_age_seconds),
        "spilled": short_text(stats.spilled_transactions),
        "syncs": _UNKNOWN if rates is None else rate_text(rates.syncs),
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in found.items())
    return f'<dl class="s-figures">{rows}</dl>'


def groups(seen: Observation) -> str:
    """Return the groups as a table, those with most to take first."""
    if seen.stats is None or not seen.stats.groups:
        return '<p class="s-soft">No groups: nobody has taken from this channel.</p>'
    rows = []
    shows_expired = any(group.expired_events for group in seen.stats.groups.values())
    for name, group in nlargest(_MOST_ROWS, seen.stats.groups.items(), key=lambda item: item[1].lag):
        rate = _UNKNOWN if seen.rates is None else rate_text(seen.rates.group_takes.get(name, 0.0))
        age = _UNKNOWN if group.oldest_age_seconds is None else age_text(group.oldest_age_seconds)
        cells = [f"{group.lag:,}", age, rate, str(group.position), f"{group.in_flight:,}"]
        cells += [f"{group.expired_events:,}"] if shows_expired else []
        mark = ' <span class="s-badge">a stream\'s own</span>' if group.is_automatic else ""
        mark += ' <span class="s-badge warn">without an owner</span>' if name in seen.stats.without_owner else ""
        rows.append([f"{escape(name)}{mark}", *cells])
    columns = ["group", "lag", "age", "taken", "position", "in flight", *(["expired"] if shows_expired else [])]
    return _table("Lag and age of each group", columns, rows) + _more(len(seen.stats.groups), "group")


def workers(seen: Observation) -> str:
    """Return the workers as a table, those that need a look first; "" if there are none."""
    if seen.stats is None or not seen.stats.workers:
        return ""
    rows = []
    for worker in nlargest(_MOST_ROWS, seen.stats.workers, key=lambda worker: worker.is_troubled):
        state = f'<span class="s-badge warn">{worker.state}</span>' if worker.is_troubled else worker.state
        counts = (worker.done_events, worker.failed_calls, worker.dead_letter_events, worker.dropped_events)
        trouble = worker.trouble or worker.last_error
        where = worker.process or "this process"
        numbers = [f"{count:,}" for count in (*counts, worker.waiting_events)]
        rows.append([escape(worker.group), state, escape(where), escape(trouble) or _UNKNOWN, *numbers])
    columns = ["group", "state", "process", "last error", "done", "failed calls", "dead letters", "dropped", "waiting"]
    table = _table("What each group's worker does", columns, rows, text_columns=4)
    return table + _more(len(seen.stats.workers), "worker")


def _more(count: int, what: str) -> str:
    """Return how many rows of a table are left out; "" if none is."""
    return f'<p class="s-soft">and {counted(count - _MOST_ROWS, f"more {what}")}</p>' if count > _MOST_ROWS else ""


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Return a table of HTML; the first columns are text, and the others numbers."""
    number = ["" if i < text_columns else ' class="n"' for i in range(len(columns))]
    head = "".join(f'<th scope="col"{n}>{escape(name)}</th>' for name, n in zip(columns, number, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{n}>{cell}</td>" for cell, n in zip(row, number, strict=True)) + "</tr>" for row in rows
    )
    return (
        f'<div class="s-scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="s-table">'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def advice(found: Sequence[Advice]) -> str:
    """Return what needs a look, with what to do."""
    items = "".join(
        f'<li class="{a.urgency.value}"><b>{a.urgency.value.capitalize()}: {escape(a.text)}</b>{escape(a.action)}</li>'
        for a in found
    )
    return f'<ul class="s-advice">{items}</ul>' if items else ""


def spills(found: Sequence[Spill]) -> str:
    """Return the latest spills as a table."""
    if not found:
        return '<p class="s-soft">No put has gone to disk for want of memory since this page was started.</p>'
    rows = [[time.strftime("%H:%M:%S", time.localtime(s.at)), f"{s.transactions:,}"] for s in found[:_MOST_SPILLS]]
    return _table("Put transactions that went to disk for lack of memory", ["until", "transactions"], rows)


def options(known: Sequence[Option], stored: Mapping[str, Any]) -> str:
    """Return a channel's options with their values and meaning."""
    rows = []
    for option in known:
        value = stored.get(option.keyword)
        is_default = value == option.default
        mark = "" if is_default else ' <span class="s-badge">changed</span>'
        text = _UNKNOWN if value is None else f"{value:,}" if type(value) is int else str(value)
        default = "" if is_default or option.default is None else f" Default: {option.default}."
        meaning = f"{_prose(option.doc)}<br><span class='s-soft'>{escape(option.range)}.{escape(default)}</span>"
        rows.append([f'<code class="s-word">{option.name}</code>', f"<code>{escape(text)}</code>{mark}", meaning])
    return _table("The options that are stored in the channel", ["option", "value", "meaning"], rows, text_columns=3)


def _prose(text: str) -> str:
    """Return text whose names in backticks are code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def events(found: EventTable) -> str:
    """Return events as a table: a typed channel's rows, or bodies as text, JSON and hexadecimal digits."""
    if not len(found):
        return '<p class="s-soft">There are no events here.</p>'
    caption = f"{counted(len(found), 'event')}: looked at, not taken"
    if found.typed:
        columns = found.columns()
        rows = [[*map(escape, row)] for row in found.texts()]
        return _table(caption, columns, rows, text_columns=len(columns))
    rows = [[str(row["write_order_id"]), _headers(row["headers"]), _body(row["body"])] for row in found.rows()]
    return _table(caption, ["ID", "headers", "body"], rows, text_columns=3)


def _headers(headers: Mapping[str, str]) -> str:
    return "<br>".join(f"<span class='s-soft'>{escape(k)}</span> {escape(v)}" for k, v in headers.items()) or _UNKNOWN


def _body(body: bytes) -> str:
    """Return a body: its beginning, and all that is said of it when it is opened."""
    begin = body[:_MOST_BODY_BYTES]
    parts = [f"<div class='s-soft'>{size_text(len(body))}</div>"]
    try:
        parts.append(f"<pre>{escape(begin.decode())}</pre>")
        pretty = json.dumps(json.loads(begin), indent=2, ensure_ascii=False)
        parts.append(f"<div class='s-soft'>as JSON</div><pre>{escape(pretty)}</pre>")
    except (ValueError, RecursionError):
        pass
    parts.append(f"<div class='s-soft'>in hexadecimal digits</div><pre>{_hex(body[:_HEX_BYTES])}</pre>")
    return f"<details><summary>{escape(body_text(body, 110))}</summary>{''.join(parts)}</details>"


def _hex(body: bytes) -> str:
    lines = []
    for at in range(0, len(body), 16):
        part = body[at : at + 16]
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {escape(text)}")
    return "\n".join(lines)


def report(found: Report) -> str:
    """Return what a verify found."""
    state = "healthy" if found.healthy else "damaged"
    read = f"{counted(found.files, 'file')}, {counted(found.frames, 'frame')}, {size_text(found.read_bytes)} read"
    mark = (
        f'<span class="s-badge {"good" if found.healthy else "bad"}">{state}</span> <span class="s-soft">{read}</span>'
    )
    lost = ""
    if not found.healthy:
        lost = f"<p>spillable repair would lose {found.loss.events_text() or 'no event'}.</p>"
    if not found.findings:
        return f"<p>{mark}</p>"
    rows = [[f.severity.value, escape(str(f.path)), escape(f.text)] for f in found.findings[:_MOST_FINDINGS]]
    return f"<p>{mark}</p>{lost}" + _table("Findings", ["severity", "file", "what"], rows, text_columns=3)
