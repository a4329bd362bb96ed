"""Draws a channel for a notebook: its state as HTML, its recent past as a plot."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from html import escape
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from spillable_stream.arguments import instance
from spillable_stream.channel.figures import age_text, size_text
from spillable_stream.channel.stats import ChannelStats, GroupStats, TierStats, WorkerStats
from spillable_stream.channel.worker_status import worker_text
from spillable_stream.counted import counted
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.telemetry import Sample
from spillable_stream.state.ranges import count_of, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["notice_html", "plot_channel", "plot_samples", "stats_html"]

# Readable on white and on black. Text keeps the notebook's colour; lines and tracks are half transparent.
_MEMORY, _DISK, _KEPT, _WARNING = "#2f74b5", "#d98c2b", "#8a8f98", "#d64545"
_TRACK = "rgba(128,128,128,.25)"

_MOST_RUNS = 100
_MOST_NAMES = 3
_MOST_GROUPS = 100
_STRIP_CHARACTERS = 90  # about the width of the strip
_TIMES = ((3600, "hours"), (60, "minutes"), (1, "seconds"))


# ── HTML ────────────────────────────────────────────────────────────────────────────────────────


def stats_html(path: ChannelPath, typed: bool, stats: ChannelStats) -> str:
    """Return a channel as self-contained HTML: it needs no script and no style sheet.

    Args:
        path: what users call the channel.
        typed: whether it is a typed channel.
        stats: what it holds.
    """
    return _frame(
        "Typed channel" if typed else "Event channel",
        path,
        _tier("memory", _MEMORY, stats.memory),
        _tier("disk", _DISK, stats.disk),
        _kept(stats),
        _delayed(stats),
        _spool(stats),
        _facts(stats),
        _losses(stats),
        _strip(stats.drain_order),
        _groups(stats.groups),
        _without_owner(stats.without_owner),
        *map(_worker, stats.workers),
    )


def notice_html(path: ChannelPath, text: str) -> str:
    """Return HTML for a channel that can't be shown, with the reason.

    Args:
        path: what users call the channel.
        text: the reason, such as "closed".
    """
    return _frame("Channel", path, _line(escape(text)))


def _frame(kind: str, path: ChannelPath, *parts: str) -> str:
    head = f'<b>{kind}</b> <code style="background:none">{escape(str(path))}</code>'
    return f'<div style="max-width:640px;font-size:13px;line-height:1.5">{head}{"".join(parts)}</div>'


def _line(content: str, style: str = "") -> str:
    return f'<div style="margin-top:6px;{style}">{content}</div>'


def _tier(name: str, colour: str, tier: TierStats) -> str:
    """Return the bars of a tier: one for its events and, for memory, one for its bytes."""
    if not tier.events and not tier.event_capacity:
        return _bar(name, colour, 0, 0, "none")
    events = f"{tier.events:,} of {counted(tier.event_capacity, 'event')}"
    bars = _bar(name, colour, tier.events, tier.event_capacity, events)
    if tier.byte_capacity is not None:
        size = f"{size_text(tier.payload_bytes)} of {size_text(tier.byte_capacity)}"
        bars += _bar("", colour, tier.payload_bytes, tier.byte_capacity, size)
    return bars


def _kept(stats: ChannelStats) -> str:
    """Return a bar for what is kept though every group has taken it, as a part of all events that are there."""
    kept = stats.kept
    if not kept.events:
        return ""
    text = f"{counted(kept.events, 'event')} ({size_text(kept.payload_bytes)}) since ID {kept.first_id}"
    return _bar("kept", _KEPT, kept.events, kept.events + stats.channel_size, text)


def _delayed(stats: ChannelStats) -> str:
    """Return a line for what waits until it is due."""
    delayed = stats.delayed
    if delayed.next_due is None:
        return ""
    left = max(0.0, delayed.next_due - time.time())
    size = f"{counted(delayed.events, 'event')} ({size_text(delayed.payload_bytes)})"
    return _line(f"delayed: {size}, the next due in {age_text(left)}")


def _spool(stats: ChannelStats) -> str:
    """Return a line for what is acknowledged and not in the store yet."""
    spool = stats.spool
    if spool is None:
        return ""
    text = f"in the spool, to be shipped: {counted(spool.events, 'event')} ({size_text(spool.size_bytes)})"
    if spool.oldest_seconds is not None:
        text += f", the oldest {age_text(spool.oldest_seconds)} old"
    return _line(text + (f" · {escape(spool.trouble)}" if spool.trouble else ""))


def _worker(worker: WorkerStats) -> str:
    """Return a line for a worker: what it did, and what is wrong with it."""
    state = f'<b style="color:{_WARNING}">{worker.state}</b>' if worker.is_troubled else worker.state
    return _line(f"worker of {escape(worker.group)} {state}: {escape(worker_text(worker))}")


def _bar(name: str, colour: str, held: int, capacity: int, text: str) -> str:
    percent = min(100.0, 100.0 * held / capacity) if capacity else 100.0 * bool(held)
    return _line(
        f'<span style="flex:0 0 60px">{name}</span>'
        f'<span style="flex:1 1 0;height:10px;background:{_TRACK}">'
        f'<span style="display:block;height:10px;width:{percent:.4g}%;background:{colour}"></span></span>'
        f'<span style="flex:0 0 230px">{text}</span>',
        "display:flex;align-items:center;gap:10px",
    )


def _facts(stats: ChannelStats) -> str:
    return _line(
        f"overflow {'<b>active</b>' if stats.overflow_active else 'not active'}"
        f" · {counted(stats.spilled_transactions, 'transaction')} spilled"
        + (f" · oldest event {age_text(stats.oldest_age_seconds)} old" if stats.oldest_age_seconds is not None else "")
    )


def _losses(stats: ChannelStats) -> str:
    found = []
    if stats.lost:
        count = count_of(stats.lost)
        found.append(f"<b>{counted(count, 'event')} lost</b> with a memory tier: IDs {listed(stats.lost)}")
    if stats.doubtful:
        found.append(f"perhaps lost, if they were ever put: IDs {listed(stats.doubtful)}")
    removed = [(name, g.removed) for name, g in stats.groups.items() if g.removed]
    found += [
        f"<b>{counted(count_of(ranges), 'event', 'were')} removed</b> before {escape(name)} took them: IDs "
        f"{listed(ranges)}"
        for name, ranges in removed[:_MOST_NAMES]
    ]
    if len(removed) > _MOST_NAMES:
        found.append(f"events were removed for {counted(len(removed) - _MOST_NAMES, 'more group')}")
    style = f"border-left:4px solid {_WARNING};background:{_WARNING}26;padding:2px 8px"
    return _line("<br>".join(found), style) if found else ""


def _strip(drain_order: Sequence[int]) -> str:
    """Return the runs of events as a strip; takes start at its left end."""
    if not drain_order:
        return _line("no events")
    shown, rest = drain_order[:_MOST_RUNS], drain_order[_MOST_RUNS:]
    total = sum(map(abs, shown))
    cells = "".join(_run(run, total) for run in shown)
    if rest:
        text = f"… {counted(len(rest), 'more run')}"
        title = f"{text}: {counted(sum(map(abs, rest)), 'event')}"
        cells += f'<span title="{title}" style="flex:none;padding:0 6px;background:{_TRACK}">{text}</span>'
    style = "display:flex;margin-top:2px;font-size:11px;line-height:20px;text-align:center;white-space:nowrap"
    return _line(f'drain order, first to be taken at the left<div style="{style}">{cells}</div>')


def _run(run: int, total: int) -> str:
    count, (place, colour, ink) = abs(run), ("in memory", _MEMORY, "#fff") if run > 0 else ("on disk", _DISK, "#000")
    label = f"{count:,}" if len(f" {count:,}") <= _STRIP_CHARACTERS * count / total else ""
    return (
        f'<span title="{counted(count, "event")} {place}" style="flex:{count} 1 0;min-width:3px;height:20px;'
        f'overflow:hidden;background:{colour};color:{ink}">{label}</span>'
    )


def _groups(groups: Mapping[str, GroupStats]) -> str:
    if not groups:
        return _line("no groups")
    shown = list(groups.items())
    if len(shown) > _MOST_GROUPS:
        shown = nlargest(_MOST_GROUPS, shown, key=lambda item: item[1].lag)
    shows_expired = any(g.expired_events for g in groups.values())
    rows = [
        _row(
            "td",
            escape(name),
            str(g.position),
            *(f"{n:,}" for n in (g.lag, g.in_flight, *([g.expired_events] if shows_expired else []))),
        )
        for name, g in shown
    ]
    head = _row("th", "group", "position", "lag", "in flight", *(["expired"] if shows_expired else []))
    more = _line(f"and {counted(len(groups) - len(shown), 'more group')}") if len(groups) > len(shown) else ""
    return f'<table style="margin:6px 0 0;border-collapse:collapse">{head}{"".join(rows)}</table>{more}'


def _without_owner(groups: Sequence[str]) -> str:
    if not groups:
        return ""
    named = ", ".join(map(escape, groups[:_MOST_NAMES]))
    more = f" and {len(groups) - _MOST_NAMES:,} more" if len(groups) > _MOST_NAMES else ""
    call = escape(f"channel.drop_group({groups[0]!r})", quote=False)
    return _line(
        f"without an owner: {named}{more}. If the stream of one will not be started again, drop it: "
        f'<code style="background:none">{call}</code>'
    )


def _row(tag: str, name: str, *numbers: str) -> str:
    line = f"border:0;border-bottom:1px solid {_TRACK}"
    cells = [f'<{tag} style="{line};padding:2px 0;text-align:left">{name}</{tag}>']
    cells += [f'<{tag} style="{line};padding:2px 0 2px 24px;text-align:right">{n}</{tag}>' for n in numbers]
    return f"<tr>{''.join(cells)}</tr>"


# ── a plot ──────────────────────────────────────────────────────────────────────────────────────


def plot_channel(engine: Engine, ax: Axes | None) -> Axes:
    """Draw what the tiers of a channel held until now, as `plot_samples` does; raises what that raises.

    Args:
        engine: the channel.
        ax: the axes to draw on; None for a new figure.
    """
    with engine.snapshot() as state:
        samples = engine.samples.until_now(state)
    return plot_samples(samples, engine.path.name, ax)


def plot_samples(samples: Sequence[Sample], name: str, ax: Axes | None = None) -> Axes:
    """Draw how many events the tiers held, disk stacked on memory, and shade the times of active overflow.

    Args:
        samples: the samples, oldest first. Each holds until the next; a single one is drawn one second wide.
        name: the title.
        ax: the axes to draw on; None for a new figure.

    Returns:
        The axes.

    Raises:
        ImportError: matplotlib is not installed.
        OptionError: ``ax`` is not such axes.
    """
    try:
        import matplotlib.axes
        from matplotlib import pyplot
        from matplotlib.ticker import MaxNLocator, StrMethodFormatter
    except ImportError as e:
        raise ImportError("a plot needs matplotlib: pip install 'spillable-stream[plot]'") from e
    if ax is not None:
        instance("ax", ax, matplotlib.axes.Axes)
    else:
        _, ax = pyplot.subplots(figsize=(8, 3), layout="constrained")
    ax.set_title(name, loc="left")
    ax.set(ylabel="events stored", xlabel="time (seconds)")
    ax.yaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if not samples:
        ax.text(0.5, 0.5, "no samples", transform=ax.transAxes, ha="center", va="center")
        return ax
    if len(samples) == 1:
        samples = [samples[0], samples[0]._replace(time=samples[0].time + 1)]
    start, span = samples[0].time, samples[-1].time - samples[0].time
    length, unit = next((t for t in _TIMES if span >= 3 * t[0]), _TIMES[-1])
    times = [(s.time - start) / length for s in samples]
    memory, disk = [s.memory_events for s in samples], [s.disk_events for s in samples]
    ax.stackplot(times, memory, disk, labels=["memory", "disk"], colors=[_MEMORY, _DISK], step="post")
    for i, (first, last) in enumerate(_overflows(samples)):
        label = "overflow active" if i == 0 else "_"  # one entry in the legend
        ends = ((first - start) / length, (last - start) / length)
        ax.axvspan(*ends, label=label, color=_WARNING, alpha=0.3, linewidth=0, zorder=0)
    ax.set_xlabel(f"{unit} since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(start))}")
    ax.set_xlim(times[0], times[-1] or None)
    ax.set_ylim(0, 1.15 * max(1, *map(sum, zip(memory, disk, strict=True))))
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)  # beside the title, off the data
    return ax


def _overflows(samples: Sequence[Sample]) -> Iterator[tuple[float, float]]:
    """Yield the start and end of each stretch of active overflow, in seconds since 1970."""
    for active, found in groupby(pairwise(samples), key=lambda pair: pair[0].overflow):
        stretch = list(found)
        if active:
            yield stretch[0][0].time, stretch[-1][1].time
