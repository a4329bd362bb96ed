"""Draws observations of channels for a terminal of any width: bars, the drain order, groups, and what needs a look."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spillable_stream.channel.figures import age_text, rate_text, short_text, size_text
from spillable_stream.channel.stats import ChannelStats, TierStats
from spillable_stream.channel.worker_status import worker_text
from spillable_stream.counted import counted
from spillable_stream.observe.advice import Urgency, advice_on
from spillable_stream.observe.drain_strip import strip_cells
from spillable_stream.observe.observation import Observation, Rates

__all__ = ["block", "block_height", "overview"]

_MEMORY, _DISK = "cyan", "yellow"
_MEMORY_CELL, _DISK_CELL, _FREE_CELL = "█", "▒", "·"  # which tier it is shows without colours, too
_NAME_CELLS = 9
_MOST_CELLS = 160
_MOST_TEXT_CELLS = 120
_LEAST_BAR_CELLS = 10
_MOST_GROUPS = 8
_MOST_WORKERS = 8
_MOST_ADVICE = 3
_NARROW = 72
_STYLES = {Urgency.ERROR: "bold red", Urgency.WARNING: "yellow", Urgency.NOTE: "dim"}
_UNKNOWN = "-"


def block(seen: Observation, width: int) -> RenderableType:
    """Return a channel in full.

    Args:
        seen: the channel.
        width: the terminal's, in cells.
    """
    lines: list[RenderableType] = [_title(seen, width)]
    if (stats := seen.stats) is not None:
        lines += [*_tiers(stats, width), _drain_order(stats, width), _pace(stats, seen.rates)]
        if stats.groups:
            lines.append(_groups(stats, seen.rates, width))
        lines += _workers(stats)
    return Group(*lines, *_advice(seen, width), "")


def block_height(seen: Observation, width: int) -> int:
    """Return how many lines `block` has."""
    advice = len(_advice(seen, width))
    if seen.stats is None:
        return 2 + advice
    stats, groups = seen.stats, len(seen.stats.groups)
    workers = min(len(stats.workers), _MOST_WORKERS + 1)
    return 6 + advice + workers + (1 + min(groups, _MOST_GROUPS) + (groups > _MOST_GROUPS) if groups else 0)


def overview(observations: Sequence[Observation], width: int) -> Table:
    """Return many channels, one a line.

    Args:
        observations: the channels.
        width: the terminal's, in cells.
    """
    narrow = width < _NARROW
    table = Table(box=None, padding=(0, 1, 0, 0), width=width)
    table.add_column("channel", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("fill", "events", "put", "take", "lag", "age", *(() if narrow else ("spills", "syncs"))):
        table.add_column(name, justify="right", no_wrap=True)
    for seen in observations:
        stats, rates = seen.stats, seen.rates
        if stats is None:
            style, state = ("dim", "…") if seen.is_to_come else ("bold red", "down")
            table.add_row(Text(_tail(seen.path, width // 3), style), Text(state, style))
            continue
        worst = next((_STYLES[advice.urgency] for advice in advice_on(seen)), "")
        cells = [
            f"{stats.channel_fill_percentage:.0f}%",
            short_text(stats.channel_size),
            _rate(rates.puts if rates else None),
            _rate(rates.takes if rates else None),
            _UNKNOWN if seen.largest_lag is None else short_text(seen.largest_lag),
            _UNKNOWN if seen.oldest_age_seconds is None else age_text(seen.oldest_age_seconds),
        ]
        if not narrow:
            cells += [_rate(rates.spills if rates else None), _rate(rates.syncs if rates else None)]
        table.add_row(Text(seen.path, worst), *cells)
    return table


def _title(seen: Observation, width: int) -> Text:
    if seen.stats is None:
        return Text(_tail(seen.path, width), "bold red")
    right = f" {seen.stats.channel_fill_percentage:.0f}% full"
    path = _tail(seen.path, width - len(right))
    return Text.assemble((path.ljust(width - len(right)), "bold"), right)


def _tiers(stats: ChannelStats, width: int) -> list[Text]:
    """Return a bar for each tier, both of one length."""
    tiers = (("memory", _MEMORY_CELL, _MEMORY, stats.memory), ("disk", _DISK_CELL, _DISK, stats.disk))
    figures = [_figures(tier, width) for *_, tier in tiers]
    cells = max(_LEAST_BAR_CELLS, min(width, _MOST_CELLS) - _NAME_CELLS - max(map(len, figures)))
    found = []
    for (name, cell, style, tier), text in zip(tiers, figures, strict=True):
        line = Text(f"  {name:<{_NAME_CELLS - 2}}", no_wrap=True, overflow="ellipsis")
        filled = min(cells, max(round(_share(tier) * cells), 1 if tier.events else 0))
        line.append(cell * filled, style).append(_FREE_CELL * (cells - filled), "dim").append(text)
        found.append(line)
    return found


def _figures(tier: TierStats, width: int) -> str:
    if not tier.event_capacity and not tier.events:
        return " none"
    size = size_text(tier.payload_bytes)
    figures = f" {tier.events:,} of {short_text(tier.event_capacity)} · {size}"
    return figures if width >= _NARROW else f" {short_text(tier.events)}/{short_text(tier.event_capacity)} {size}"


def _share(tier: TierStats) -> float:
    """Return how full a tier is, 0 to 1: by events or by bytes, whichever is more."""
    by_events = tier.events / tier.event_capacity if tier.event_capacity else float(tier.events > 0)
    return max(by_events, tier.payload_bytes / tier.byte_capacity if tier.byte_capacity else 0.0)


def _drain_order(stats: ChannelStats, width: int) -> Text:
    """Return the runs of events as a strip; takes start at its left end."""
    if not stats.drain_order:
        return Text.assemble(f"  {'drain':<{_NAME_CELLS - 2}}", ("no events", "dim"))
    strip = Text(f"  {'drain':<{_NAME_CELLS - 2}}")
    for is_memory, cells in groupby(strip_cells(stats.drain_order, min(width, _MOST_CELLS) - _NAME_CELLS)):
        cell, style = (_MEMORY_CELL, _MEMORY) if is_memory else (_DISK_CELL, _DISK)
        strip.append(cell * len(list(cells)), style)
    return strip


def _pace(stats: ChannelStats, rates: Rates | None) -> Text:
    parts = [
        f"put {_rate(rates.puts if rates else None)}",
        f"take {_rate(rates.takes if rates else None)}",
        f"spills {short_text(stats.spilled_transactions)} ({_rate(rates.spills if rates else None)})",
        f"syncs {_rate(rates.syncs if rates else None)}",
    ]
    if stats.delayed.events:
        parts.append(f"delayed {short_text(stats.delayed.events)}")
    if stats.kept.events:
        parts.append(f"kept {short_text(stats.kept.events)}")
    return Text("  " + " · ".join(parts), no_wrap=True, overflow="ellipsis")


def _groups(stats: ChannelStats, rates: Rates | None, width: int) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), width=width, header_style="dim")
    table.add_column("  group", ratio=1, no_wrap=True, overflow="ellipsis")
    figures = ("lag", "age") if width < _NARROW else ("lag", "age", "taken", "in flight")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    if shows_expired := any(group.expired_events for group in stats.groups.values()):
        table.add_column("expired", justify="right", no_wrap=True)
    by_lag = sorted(stats.groups.items(), key=lambda item: -item[1].lag)
    for name, group in by_lag[:_MOST_GROUPS]:
        age = _UNKNOWN if group.oldest_age_seconds is None else age_text(group.oldest_age_seconds)
        taken = _rate(None if rates is None else rates.group_takes.get(name, 0.0))
        in_flight = short_text(group.in_flight) if group.in_flight else _UNKNOWN
        expired = [short_text(group.expired_events)] if shows_expired else []
        cells = [short_text(group.lag), age, taken, in_flight][: len(figures)]
        table.add_row(f"  {name}", *cells, *expired)
    if (more := len(by_lag) - _MOST_GROUPS) > 0:
        table.add_row(Text(f"  and {counted(more, 'more group')}", "dim"))
    return table


def _workers(stats: ChannelStats) -> list[Text]:
    """Return a line for each worker, those that need a look first."""
    found = []
    by_need = sorted(stats.workers, key=lambda worker: not worker.is_troubled)
    for worker in by_need[:_MOST_WORKERS]:
        style = "bold red" if worker.is_troubled else ""
        line = Text("  worker ", no_wrap=True, overflow="ellipsis")
        found.append(line.append(f"{worker.group} {worker.state}", style).append(f" · {worker_text(worker)}"))
    if (more := len(stats.workers) - _MOST_WORKERS) > 0:
        found.append(Text(f"  and {counted(more, 'more worker')}", "dim"))
    return found


def _rate(per_second: float | None) -> str:
    return _UNKNOWN if per_second is None else rate_text(per_second)


def _advice(seen: Observation, width: int) -> list[Text]:
    """Return what needs a look, in lines that fit."""
    found = []
    for advice in advice_on(seen)[:_MOST_ADVICE]:
        text, style = f"{advice.text} → {advice.action}", _STYLES[advice.urgency]
        lines = textwrap.wrap(text, min(width, _MOST_TEXT_CELLS), initial_indent="  ! ", subsequent_indent="    ")
        found += [Text(line, style, no_wrap=True, overflow="ellipsis") for line in lines]
    return found


def _tail(path: str, width: int) -> str:
    """Return a path, or its end where it is too long: that tells channels apart."""
    return path if len(path) <= width else f"…{path[len(path) - width + 1 :]}"
