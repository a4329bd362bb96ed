"""A worker beside plain takes: both empty a channel of the same events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import spillable_stream as ss
from benchmarks.events import Shape
from benchmarks.ours import EVENTS, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan

__all__ = ["groups"]

_PLAIN = "take transactions"
_SHAPES = (Shape(1, 100), Shape(100, 100), Shape(1_000, 100))
_TRANSACTIONS_A_SECOND = 1_000  # there are as many as take the plan's time, about
_EVENTS_A_SECOND = 100_000  # of large ones fewer, since all of them are put first


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield a group for each size of a batch."""
    for shape in _SHAPES:
        contestants = {_PLAIN: _emptied(shape, plan.seconds, _take_all)}
        for threads in (1, 4):
            name = f"worker, {threads} thread{'s' * (threads > 1)}"
            contestants[name] = _emptied(shape, plan.seconds, partial(_work, threads=threads))
        title = f"Takes of {shape} and their commits, and a worker whose function does nothing"
        yield Group(f"worker {shape}", title, "events/s", _PLAIN, contestants)


def _emptied(shape: Shape, seconds: float, empty: Callable[[ss.Channel, Shape], None]) -> Contestant:
    """Return who empties a channel."""

    def run(directory: Path) -> Figures:
        with new_channel(directory) as channel:
            a_second = min(_TRANSACTIONS_A_SECOND, _EVENTS_A_SECOND // shape.events)
            put = put_step(channel, shape, EVENTS)
            events = sum(put() for _ in range(max(1, int(seconds * a_second))))
            began = time.perf_counter()
            empty(channel, shape)
            return {"take": events / (time.perf_counter() - began)}

    return run


def _take_all(channel: ss.Channel, shape: Shape) -> None:
    take = take_step(channel, shape.events, EVENTS)
    while take():
        pass


def _work(channel: ss.Channel, shape: Shape, threads: int) -> None:
    size = None if shape.events == 1 else shape.events
    channel.worker("default", lambda _: None, batch_size=size, threads=threads).run(until_empty=True)
