"""The verb ``top``: a live view of many channels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillable_stream.cli.app import (
    HEALTHY,
    UNHEALTHY,
    UNKNOWN,
    AsJson,
    allow_many_files,
    as_line,
    fail,
    print_object,
    until_signal,
)
from spillable_stream.cli.arguments import ChannelPaths, time_span
from spillable_stream.errors import SpillableError
from spillable_stream.observe.advice import advice_on

if TYPE_CHECKING:
    from spillable_stream.observe.observation import Observation
    from spillable_stream.observe.observer import Observer

__all__ = ["observation_dict", "top"]

_INTERVAL = Annotated[
    float,
    typer.Option(
        "--interval", metavar="TIME", parser=time_span(0.1, 3600), help="The time between two looks, as 5 or 1m."
    ),
]
_ONCE = Annotated[bool, typer.Option("--once", help="Print one view, after two looks, and end.")]


def top(paths: ChannelPaths, interval: _INTERVAL = 1.0, once: _ONCE = False, as_json: AsJson = False) -> None:
    """Watch channels live: fill of both tiers, drain order, rates, lag and age of each group, spills, syncs.

    With --json it prints an object a line for each look; with --once as well, only one.

    Example: `spillable top /data/orders '/data/clicks-*'`

    Exit status: 0 it ended as asked; with --once, 1 if a channel can't be looked at, and 2 if none is there; 2 the
    arguments can't be used.
    """
    from rich.console import Console

    from spillable_stream.cli.top_screen import run, screen
    from spillable_stream.observe.observer import Observer

    def show(found: list[Observation]) -> None:
        if as_json and once:
            print_object(_looked(found))
        elif as_json:
            typer.echo(as_line(_looked(found)))
        else:
            console.print(screen(found, console.width, None))

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
            show(found)
            raise typer.Exit(_status_of(found))
        with until_signal():
            if as_json or not console.is_terminal:
                _show_each(observer, interval, show)
            else:
                run(observer, interval, console)


def _status_of(found: Sequence[Observation]) -> int:
    if all(seen.missing for seen in found):
        return UNKNOWN
    return HEALTHY if all(seen.stats is not None for seen in found) else UNHEALTHY


def _after_two_looks(observer: Observer, interval_seconds: float) -> list[Observation]:
    while any(seen.is_to_come for seen in observer.observe()):  # of a thousand channels
        pass
    time.sleep(interval_seconds)  # a rate is a difference
    return observer.observe()


def _show_each(observer: Observer, interval_seconds: float, show: Callable[[list[Observation]], None]) -> None:
    while True:
        show(observer.observe())
        time.sleep(interval_seconds)


def _looked(observations: Sequence[Observation]) -> dict[str, Any]:
    return {"channels": [observation_dict(seen) for seen in observations]}


def observation_dict(seen: Observation) -> dict[str, Any]:
    """Return an observation as plain values; names stay, and new ones may come."""
    return {**asdict(seen), "advice": [asdict(advice) for advice in advice_on(seen)]}
