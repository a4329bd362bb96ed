"""Pictures of a run, for the documentation: puts and takes beside the peers, by threads, and opening by backlog."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import backlog, growth, peer_rates, puts
from benchmarks.document import figures_of
from benchmarks.events import Shape
from benchmarks.floors import WRITTEN
from benchmarks.ours import BATCHES, EVENTS
from benchmarks.rounds import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "draw_apart"]

_OURS, _FLOOR, _PEER = "#1f6feb", "#8c959f", "#d0d7de"
_SHORT = {BATCHES: "spillable_stream, Arrow", EVENTS: "spillable_stream, Python", WRITTEN: "the disk's own limit"}
_COSTS = {
    "put": _OURS,
    "take": "#cf222e",
    "checkpoint": "#bf8700",
    "checkpoint, size": "#8250df",
    "restore": "#1a7f37",
    "create": "#1a7f37",
    "put, all together": _OURS,
    "put, of the slowest": "#cf222e",
}
_AXES_A_ROW = 3
_TIMES = (0.3, 5_000)  # of a cost, the same for all kinds of work
_WAYS = {backlog.REBOOT: "#cf222e", backlog.LOG: "#bf8700", backlog.CHECKPOINT: _OURS}


def draw_apart(name: str, directory: Path, pictures: str) -> bool:
    """Draw a part's pictures in a process, so that what is measured next has none of it in memory; tell whether it did.

    Args:
        name: the part.
        directory: where the JSON file is.
        pictures: the directory in it for the pictures.
    """
    return subprocess.run([sys.executable, "-m", __name__, name, directory, pictures]).returncode == 0


def draw(found: Mapping[str, Comparison], directory: Path) -> list[Path]:
    """Draw whatever was measured, and return the files.

    Args:
        found: the comparisons, by name.
        directory: where the pictures go.
    """
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "benchmarks", "font.size": 9, "axes.spines.top": False})
    matplotlib.rcParams.update({"axes.spines.right": False, "axes.axisbelow": True})
    files = []
    sizes = [n for n in peer_rates.TRANSACTIONS if peer_rates.group_name(n) in found]
    if sizes:
        for figure in ("put", "take"):
            files.append(_save(_beside_peers(found, sizes, figure), directory / f"{figure}s.svg"))
    shapes = [shape for shape in (Shape(1, 100), Shape(1_000, 100)) if puts.group_name(shape) in found]
    if shapes:
        files.append(_save(_by_threads(found, shapes), directory / "threads.svg"))
    opened = {c.name: c for c in found.values() if c.name.startswith("open ") and c.contestants}
    if opened:
        files.append(_save(_by_backlog(opened), directory / "open.svg"))
    grown = [found[axis] for axis in growth.AXES if axis in found and found[axis].contestants]
    if grown:
        files.append(_save(_by_work(grown), directory / "growth.svg"))
    return files


def _save(figure: Figure, path: Path) -> Path:
    import matplotlib.pyplot as plt

    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _new(columns: int, width: float, height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    return figure, list(axes.flat)


def _beside_peers(found: Mapping[str, Comparison], sizes: list[int], what: str) -> Figure:
    """Draw bars for each size of transactions: ours, the floor, and every peer in its safest mode."""
    groups = [found[peer_rates.group_name(events)] for events in sizes]
    names = [WRITTEN, BATCHES, EVENTS, *peer_rates.DURABLE]
    names = [name for name in names if any(group.has(name, what) for group in groups)]
    figure, axes = _new(len(sizes), 3.4 * len(sizes), 3.2)
    for column, (ax, events, comparison) in enumerate(zip(axes, sizes, groups, strict=True)):
        for at, name in enumerate(reversed(names)):
            if comparison.has(name, what):
                color = _OURS if name in (BATCHES, EVENTS) else _FLOOR if name == WRITTEN else _PEER
                bar = ax.barh(at, comparison.median(name, what), color=color)
                ax.bar_label(bar, fmt=_short_number, padding=2, fontsize=8)
        labels = [_SHORT.get(name, peer_rates.title_of(name)) for name in reversed(names)]
        ax.set_yticks(range(len(names)), labels if column == 0 else [""] * len(names))
        ax.set_xscale("log")
        ax.set_xlim(10, 10 * max(comparison.median(n, what) for n in names if comparison.has(n, what)))
        ax.minorticks_off()
        ax.set_title(f"transactions of {events:,}", fontsize=10)
        ax.set_xlabel("events per second")
    verb = "puts" if what == "put" else "takes with their commits"
    figure.suptitle(f"{verb.capitalize()} of 100 B; every other product in its safest mode", fontsize=11)
    return figure


def _short_number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def _by_threads(found: Mapping[str, Comparison], shapes: list[Shape]) -> Figure:
    """Draw puts by the number of threads, with the disk's limits."""
    figure, axes = _new(len(shapes), 4.2 * len(shapes), 3.0)
    for ax, shape in zip(axes, shapes, strict=True):
        comparison = found[puts.group_name(shape)]
        known = [n for n in puts.THREADS if comparison.has(puts.threaded(BATCHES, n), "put")]
        ax.plot(known, [comparison.median(puts.threaded(BATCHES, n), "put") for n in known], "o-", color=_OURS)
        limits = ((WRITTEN, "--", "a sync for each"), (puts.SEQUENTIAL, ":", "a sync for 8"))
        for name, style, text in limits:
            if comparison.has(name, "put"):
                value = comparison.median(name, "put")
                ax.axhline(value, color=_FLOOR, linestyle=style)
                ax.annotate(f"the disk, {text}", (8, value), (0, 3), textcoords="offset points", ha="right", fontsize=8)
        ax.set_xscale("log", base=2)
        ax.set_xticks(known, [str(n) for n in known])
        ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
        _plain_numbers(ax)
        ax.set_title(f"durable puts in transactions of {shape}", fontsize=10)
        ax.set_xlabel("threads")
        ax.set_ylabel("events per second")
    return figure


def _plain_numbers(ax: Any) -> None:
    ax.yaxis.set_major_formatter(lambda value, _: _short_number(value))


def _by_work(grown: list[Comparison]) -> Figure:
    """Draw each figure beside its value at the smallest size, and what a cost would be that grows as the work does."""
    rows = -(-len(grown) // _AXES_A_ROW)
    figure, axes = _new(min(len(grown), _AXES_A_ROW), 9.6, 3.0 * rows, rows)
    for ax, comparison in zip(axes, grown, strict=False):
        names = sorted(comparison.contestants, key=growth.size_of)
        sizes = [growth.size_of(name) for name in names]
        ax.plot(sizes, [size / sizes[0] for size in sizes], color=_FLOOR, linestyle=":", label="as much as the work")
        for what in comparison.figures:
            if (first := comparison.median(names[0], what)) > 0:  # memory may be less than what it grew by
                name = what.replace(", kB", ", size").removesuffix(", µs")
                line = [comparison.median(n, what) / first for n in names]
                ax.plot(sizes, line, "o-", markersize=3, label=name, color=_COSTS.get(name))
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(*_TIMES)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g} x")
        ax.set_xticks(sizes, [_short_number(size) for size in sizes])
        ax.minorticks_off()
        ax.grid(axis="y", color=_PEER, linewidth=0.6)
        ax.set_title(growth.PICTURE_TITLES[comparison.name], fontsize=10)
        ax.legend(frameon=False, fontsize=7.5, loc="upper left")
    for ax in axes[len(grown) :]:
        ax.set_visible(False)
    figure.supylabel("times the cost at the smallest size", fontsize=9)
    return figure


def _by_backlog(opened: Mapping[str, Comparison]) -> Figure:
    """Draw how long an open takes by the backlog."""
    backlogs = {int(name.removeprefix("open ").replace(",", "")): c for name, c in opened.items()}
    figure, (ax,) = _new(1, 6.4, 3.2)
    for way, color in _WAYS.items():
        known = [events for events in sorted(backlogs) if backlogs[events].has(way, "open")]
        values = [backlogs[events].median(way, "open") for events in known]
        ax.plot([events / 1e6 for events in known], values, "o-", color=color, label=way)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks([events / 1e6 for events in sorted(backlogs)], [f"{events / 1e6:g}" for events in sorted(backlogs)])
    ax.minorticks_off()
    _plain_numbers(ax)
    ax.set_xlabel("backlog, million events")
    ax.set_ylabel("milliseconds")
    ax.set_title("opening a channel", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":  # what `draw_apart` starts
    part, document, pictures = sys.argv[1:]
    kept = figures_of(part, Path(document))
    draw({name: Comparison.from_dict(name, found) for name, found in kept.items()}, Path(document, pictures))
