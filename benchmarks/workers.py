"""A worker beside plain takes of the same events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import spillable_stream as ss
from benchmarks.events import Shape
from benchmarks.ours import EVENTS, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan, rate

__all__ = ["groups"]

_PLAIN = "take transactions"
_SHAPES = (Shape(1, 100), Shape(100, 100), Shape(1_000, 100))
_MOST_TRANSACTIONS = 2_000


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield a group for each size of a batch."""
    for shape in _SHAPES:
        contestants = {_PLAIN: _takes(shape, plan.seconds)}
        for threads in (1, 4):
            contestants[f"worker, {threads} thread{'s' * (threads > 1)}"] = _worker(shape, plan.seconds, threads)
        title = f"Takes of {shape} and their commits, and a worker whose function does nothing"
        yield Group(f"worker {shape}", title, "events/s", _PLAIN, contestants)


def _filled(channel: ss.Channel, shape: Shape) -> None:
    put = put_step(channel, Shape(1_000, shape.body_bytes), EVENTS)
    for _ in range(max(1, _MOST_TRANSACTIONS * shape.events // 1_000)):
        put()


def _takes(shape: Shape, seconds: float) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory) as channel:
            _filled(channel, shape)
            return {"take": rate(take_step(channel, shape.events, EVENTS), seconds)}

    return run


def _worker(shape: Shape, seconds: float, threads: int) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory) as channel:
            _filled(channel, shape)
            function: Callable[[Any], object] = lambda _: None  # noqa: E731 - the channel's calls are measured
            worker = channel.worker(
                "default", function, batch_size=None if shape.events == 1 else shape.events, threads=threads
            )

            def step() -> int:
                worker.run(until_empty=True)
                return worker.stats().done_events

            return {"take": rate(step, 0)}

    return run
