"""The channel at work: one transaction at a time, as Arrow batches or as Python events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import spillable_stream as ss
from benchmarks.events import Shape, event_batch, python_events
from benchmarks.rounds import Contestant, Figures, rate

__all__ = ["BATCHES", "EVENTS", "new_channel", "put_step", "puts_and_takes", "take_step"]

BATCHES = "spillable_stream, Arrow batches"
EVENTS = "spillable_stream, Python events"


def new_channel(directory: Path, **options: Any) -> ss.Channel:
    """Create a channel that leaves nothing in memory when it is closed, and creates no checkpoint then."""
    quiet = {"minimum_required_space": 0, "checkpoint_on_close": False}
    return ss.Channel(directory / "channel", **{**quiet, **options})


def put_step(channel: ss.Channel, shape: Shape, kind: str) -> Callable[[], int]:
    """Return what commits one put transaction, and returns how many events that were."""
    if kind == EVENTS:
        events = python_events(shape)

        def step() -> int:
            with channel.put_transaction() as tx:
                tx.put_many(events)
            return shape.events

    else:
        batch = event_batch(channel.schema, shape)

        def step() -> int:
            with channel.put_transaction() as tx:
                tx.put_batch(batch)
            return shape.events

    return step


def take_step(channel: ss.Channel, limit: int, kind: str, timeout_seconds: float = 0.0) -> Callable[[], int]:
    """Return what commits one take transaction, and returns how many events that were."""

    def step() -> int:
        with channel.take_transaction() as tx:
            if kind == EVENTS:
                return len(tx.take_many(limit, timeout_seconds))
            table = tx.take_batch(limit, timeout_seconds)
            return 0 if table is None else int(table.num_rows)

    return step


def puts_and_takes(shape: Shape, kind: str, seconds: float, threads: int = 1, **options: Any) -> Contestant:
    """Return who puts for a while and then takes what was put, in transactions of equal size, and commits each."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, **options) as channel:
            put = rate(put_step(channel, shape, kind), seconds, threads)
            return {"put": put, "take": rate(take_step(channel, shape.events, kind), seconds, threads)}

    return run
