"""Latency: how long a commit takes, and how long an event is under way to a taker that waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import spillable_stream as ss
from benchmarks.events import Shape
from benchmarks.floors import Blocks, Disk, log_bytes
from benchmarks.ours import BATCHES, EVENTS, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan, durations_us, percentiles

__all__ = ["groups"]

_SOME = (Shape(1, 100), Shape(1_000, 100))
_ALL = (*_SOME, Shape(100, 100), Shape(10_000, 100), Shape(1, 1024), Shape(1, 16 << 10), Shape(1_000, 1024))
_MOST = 20_000
_FLOOR = "write and fdatasync, preallocated"
_PAUSE_SECONDS = 0.0005
_MEMORY = {"memory_capacity": 1 << 40}


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield the groups of commits, and of events under way."""
    for shape in _ALL if plan.full else _SOME:
        contestants = {
            _FLOOR: _plain(shape, plan.seconds),
            "put": _commits(shape, "put", plan.seconds),
            "take": _commits(shape, "take", plan.seconds),
            "put, memory tier": _commits(shape, "put", plan.seconds, **_MEMORY),
            "take, memory tier": _commits(shape, "take", plan.seconds, **_MEMORY),
        }
        yield Group(f"latency {shape}", f"Latency of a transaction of {shape}", "µs", _FLOOR, contestants)
    contestants = {
        _FLOOR: _plain(Shape(1, 100), plan.seconds),
        "on disk": _active_calls(plan.seconds),
        "in memory": _active_calls(plan.seconds, **_MEMORY),
    }
    title = "Latency from before the put of one event to a waiting thread that has taken it and not yet committed"
    yield Group("latency under way", title, "µs", _FLOOR, contestants)


def _plain(shape: Shape, seconds: float) -> Contestant:
    def run(directory: Path) -> Figures:
        disk = Disk(directory, log_bytes(shape, directory), Blocks.ALLOCATED)
        try:
            return percentiles(durations_us(disk.write, seconds, _MOST))
        finally:
            disk.close()

    return run


def _commits(shape: Shape, what: str, seconds: float, **options: Any) -> Contestant:
    """Return who measures whole transactions, from their beginning to the end of their commit."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, **options) as channel:
            found = durations_us(put_step(channel, shape, BATCHES), seconds, _MOST)
            if what == "take":
                take = take_step(channel, shape.events, BATCHES)
                take()
                found = durations_us(take, seconds, max(1, len(found) - 1))
            return percentiles(found)

    return run


def _active_calls(seconds: float, **options: Any) -> Contestant:
    """Return who puts an event now and then, each with the time, while another thread waits for it."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, **options) as channel, ThreadPoolExecutor(1) as pool:
            take_step(channel, 1, EVENTS)()
            over = threading.Event()
            waiting = pool.submit(_wait_for_events, channel, over)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                with channel.put_transaction() as tx:
                    tx.put(ss.Event(b"%d" % time.perf_counter_ns()))
                time.sleep(_PAUSE_SECONDS)
            over.set()
            return percentiles(waiting.result())

    return run


def _wait_for_events(channel: ss.Channel, over: threading.Event) -> list[float]:
    found = []
    while True:
        with channel.take_transaction() as tx:
            events = tx.take_many(1_000, 0.05)
            now = time.perf_counter_ns()
        found += [(now - int(event.body)) / 1000 for event in events]
        if not events and over.is_set():
            return found
