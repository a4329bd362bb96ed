"""The verb ``top``: a live view of many channels."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import termios
import time
import tty
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from spillable_stream.cli.app import HEALTHY, UNHEALTHY, UNKNOWN, AsJson, ChannelPaths, allow_many_files, app, fail
from spillable_stream.cli.top_view import block, block_height, overview
from spillable_stream.errors import SpillableError
from spillable_stream.observe.advice import advice_on
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observer import Observer
from spillable_stream.readiness import has_input

__all__ = ["observation_dict", "screen", "top"]

_INTERVAL = Annotated[float, typer.Option("--interval", min=0.1, max=3600, help="Seconds between two looks.")]
_ONCE = Annotated[bool, typer.Option("--once", help="Print one view, after two looks, and end.")]
_KEYS = "q leaves · o one line each · ↑ ↓ scroll"
_UP, _DOWN = ("\x1b[A", "k"), ("\x1b[B", "j")


@app.command()
def top(paths: ChannelPaths, interval: _INTERVAL = 1.0, once: _ONCE = False, as_json: AsJson = False) -> None:
    """Watch channels live: fill of both tiers, drain order, rates, lag and age of each group, spills, syncs.

    With --json it prints an object a line for each look; with --once as well, only one.

    Example: `spillable top /data/orders '/data/clicks-*'`

    Exit status: 0 it ended as asked; with --once, 1 if a channel can't be looked at; 2 the arguments can't be used.
    """
    allow_many_files()
    try:
        observer = Observer(paths)
    except SpillableError as e:
        fail(paths[0], e, as_json, UNKNOWN)
    console = Console()
    with observer, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the view itself shows what was lost
        if once:
            found = _after_two_looks(observer, interval)
            if as_json:
                typer.echo(_line(found))
            else:
                console.print(screen(found, console.width, None))
            raise typer.Exit(HEALTHY if all(seen.stats is not None for seen in found) else UNHEALTHY)
        with contextlib.suppress(KeyboardInterrupt):
            if as_json or not console.is_terminal:
                _print_lines(observer, interval, console, as_json)
            else:
                _run(observer, interval, console)


def _after_two_looks(observer: Observer, interval_seconds: float) -> list[Observation]:
    while any(seen.is_to_come for seen in observer.observe()):  # of a thousand channels
        pass
    time.sleep(interval_seconds)  # a rate is a difference
    return observer.observe()


def _print_lines(observer: Observer, interval_seconds: float, console: Console, as_json: bool) -> None:
    while True:
        found = observer.observe()
        if as_json:
            typer.echo(_line(found))
        else:
            console.print(screen(found, console.width, None))
        time.sleep(interval_seconds)


def _run(observer: Observer, interval_seconds: float, console: Console) -> None:
    is_compact, first = False, 0
    with _single_keys() as read_key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            found = observer.observe()
            due = time.monotonic() + interval_seconds
            while (left := due - time.monotonic()) > 0:
                first = max(0, min(first, len(found) - 1))
                live.update(screen(found[first:], console.width, console.height, is_compact=is_compact), refresh=True)
                match read_key(left):
                    case "q" | "Q" | "\x1b" | "\x03":
                        return
                    case "o" | "O":
                        is_compact = not is_compact
                    case key if key in _UP:
                        first -= 1
                    case key if key in _DOWN:
                        first += 1


def screen(
    observations: Sequence[Observation], width: int, height: int | None, *, is_compact: bool = False
) -> RenderableType:
    """Return the whole view.

    Args:
        observations: the channels.
        width: the terminal's, in cells.
        height: the terminal's, in lines; None for as many as it takes.
        is_compact: whether each channel has one line, even if there is room for more.
    """
    if height is None:
        return Group(*(block(seen, width) for seen in observations))
    clock = time.strftime("%H:%M:%S")
    head = Text(f"{'spillable top':<{width - len(clock)}}{clock}", "bold reverse")
    foot = Text(_KEYS, "dim", no_wrap=True, overflow="ellipsis")
    room = height - 2
    if is_compact or (len(observations) > 1 and sum(block_height(s, width) for s in observations) > room):
        shown = overview(observations[: room - 1], width)
        return Group(head, shown, foot)
    return Group(head, *(block(seen, width) for seen in observations), foot)


@contextlib.contextmanager
def _single_keys() -> Iterator[Callable[[float], str]]:
    """Let keys come one at a time, without an echo; yield what returns the next one, or "" when time is up."""

    def read_key(timeout_seconds: float) -> str:
        if not has_input(source, timeout_seconds):
            return ""
        return os.read(source.fileno(), 8).decode(errors="replace")

    def no_key(timeout_seconds: float) -> str:
        time.sleep(timeout_seconds)
        return ""

    source = sys.stdin
    if not source.isatty():
        yield no_key
        return
    before = termios.tcgetattr(source)
    try:
        tty.setcbreak(source)
        yield read_key
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


def _line(observations: Sequence[Observation]) -> str:
    return json.dumps({"channels": [observation_dict(seen) for seen in observations]})


def observation_dict(seen: Observation) -> dict[str, Any]:
    """Return an observation as plain values; names stay, and new ones may come."""
    return {**asdict(seen), "advice": [asdict(advice) for advice in advice_on(seen)]}
