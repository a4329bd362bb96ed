"""End to end: one thread or process puts, another one takes meanwhile; on disk, in memory, and with a spill."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import spillable_stream as ss
from benchmarks.events import Shape
from benchmarks.floors import COPY, WRITTEN, copies, written
from benchmarks.ours import BATCHES, EVENTS, new_channel, put_step, puts_and_takes, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan

__all__ = ["PROCESSES", "THREADS", "disk_groups", "disk_name", "memory_groups", "memory_name"]

THREADS = "2 threads"
PROCESSES = "2 processes"
LARGE_TAKES = "takes of up to 10,000"
_LARGE = 10_000
_END_TO_END = "end to end"
_DISK_SHAPES = (Shape(1_000, 100), Shape(1_000, 100, 3))
_MEMORY_SHAPES = (Shape(1_000, 100), Shape(1_000, 1024), Shape(100, 16 << 10))
_MEMORY_BYTES = 1 << 30
_ONLY_MEMORY = {
    "memory_capacity": 1 << 40,
    "byte_capacity": _MEMORY_BYTES,
    "overflow_capacity": 0,
    "keep_alive": 60,
}
_FILL_SECONDS = 0.3
_POLL_SECONDS = 0.05
_WARM_UP_PART = 0.3  # long enough for the memory tier to use its first files again


def disk_name(shape: Shape) -> str:
    """Return the name of a shape's group on disk."""
    return f"end to end {shape}"


def memory_name(shape: Shape) -> str:
    """Return the name of a shape's group in memory."""
    return f"memory {shape}"


def _shapes(plan: Plan, some: tuple[Shape, ...]) -> Iterator[Shape]:
    if not plan.full:
        yield from some
        return
    for headers, body_bytes, events in product((0, 3), (100, 1024, 16 << 10), (1, 100, 1_000, 10_000)):
        if events * body_bytes <= _MEMORY_BYTES // 16:
            yield Shape(events, body_bytes, headers)


def disk_groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield the groups of the disk tier."""
    for shape in _shapes(plan, _DISK_SHAPES):
        contestants = {WRITTEN: _renamed(written(shape, plan.seconds)), **_both_ways(shape, plan.seconds)}
        title = f"End to end, durable: transactions of {shape}"
        yield Group(disk_name(shape), title, "events/s", WRITTEN, contestants)


def memory_groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield the groups of the memory tier, and one of a channel whose memory is too small."""
    for shape in _shapes(plan, _MEMORY_SHAPES):
        contestants = {
            COPY: copies(shape, plan.seconds, ("put", "take", _END_TO_END)),
            BATCHES: _fill_and_drain(shape, BATCHES, plan.seconds),
            EVENTS: _fill_and_drain(shape, EVENTS, plan.seconds),
            **_both_ways(shape, plan.seconds, **_ONLY_MEMORY),
        }
        yield Group(memory_name(shape), f"Memory tier: transactions of {shape}", "events/s", COPY, contestants)
    yield _spill_group(Shape(1_000, 100), plan.seconds)


def _fill_and_drain(shape: Shape, kind: str, seconds: float) -> Contestant:
    """Return who puts and then takes, for so short that memory has room for all of it."""
    room: dict[str, Any] = {"memory_capacity": 1 << 40, "byte_capacity": 4 * _MEMORY_BYTES}
    return puts_and_takes(shape, kind, min(seconds, _FILL_SECONDS), **room)


def _spill_group(shape: Shape, seconds: float) -> Group:
    """Return the group in which memory has room for 10 transactions, and puts do not wait for more."""
    small: dict[str, Any] = {"memory_capacity": 10 * shape.events, "overflow_timeout": 0.0}
    contestants = {
        WRITTEN: written(shape, seconds),
        BATCHES: puts_and_takes(shape, BATCHES, seconds, **small),
        EVENTS: puts_and_takes(shape, EVENTS, seconds, **small),
        **_both_ways(shape, seconds, **small),
    }
    title = f"With a spill in the middle, memory for 10 transactions: transactions of {shape}"
    return Group(f"spill {shape}", title, "events/s", WRITTEN, contestants)


def _renamed(contestant: Contestant) -> Contestant:
    """Return who does what ``contestant`` does, one after the other: it puts and takes an event in the sum of both."""

    def run(directory: Path) -> Figures:
        found = contestant(directory)
        return {_END_TO_END: 1 / (1 / found["put"] + 1 / found["take"])}

    return run


def _both_ways(shape: Shape, seconds: float, **options: Any) -> dict[str, Contestant]:
    """Return those with two threads and those with two processes."""
    found: dict[str, Contestant] = {}
    for name, way in ((THREADS, _two_threads), (PROCESSES, _two_processes)):
        found[name] = way(shape, shape.events, BATCHES, seconds, options)
        if shape.events < _LARGE:
            found[f"{name}, {LARGE_TAKES}"] = way(shape, _LARGE, BATCHES, seconds, options)
    found[f"{THREADS}, Python events"] = _two_threads(shape, shape.events, EVENTS, seconds, options)
    return found


def _put_for(step: Callable[[], int], seconds: float) -> int:
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        done += step()
    return done


def _two_threads(shape: Shape, limit: int, kind: str, seconds: float, options: dict[str, Any]) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory, **options) as channel, ThreadPoolExecutor(1) as pool:
            put, take = put_step(channel, shape, kind), take_step(channel, limit, kind, _POLL_SECONDS)
            _in_turn(put, take, seconds * _WARM_UP_PART)
            putting: Future[int] = pool.submit(_put_for, put, seconds)
            return _take_all(take, lambda: putting.result() if putting.done() else None)

    return run


def _in_turn(put: Callable[[], int], take: Callable[[], int], seconds: float) -> None:
    """Put and take in turn, to warm up, until the time is up and nothing is left."""
    end, left = time.perf_counter() + seconds, 0
    while left or time.perf_counter() < end:
        if time.perf_counter() < end:
            left += put()
        left -= take()


def _take_all(take: Callable[[], int], total: Callable[[], int | None]) -> Figures:
    """Take until everything is taken and return the rate, up to the last event.

    Args:
        take: commits one transaction and returns how many events it took.
        total: tells how many events there will have been, once that is known.
    """
    started = last = time.perf_counter()
    taken = 0
    while (known := total()) is None or taken < known:
        if count := take():
            taken += count
            last = time.perf_counter()
    if not taken:
        raise RuntimeError("all was taken before the clock began: measure for longer")
    return {_END_TO_END: taken / (last - started)}


def _two_processes(shape: Shape, limit: int, kind: str, seconds: float, options: dict[str, Any]) -> Contestant:
    """Return who takes in this process what another one puts; the clock starts when that has begun."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, **options) as channel:
            take = take_step(channel, limit, kind, _POLL_SECONDS)
            command = [sys.executable, "-m", __name__, str(channel.path), json.dumps(shape), kind, str(seconds)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                return _take_from(child, take)
            finally:
                with suppress(ProcessLookupError):
                    child.kill()
                child.wait()

    return run


def _take_from(child: subprocess.Popen[str], take: Callable[[], int]) -> Figures:
    first = 0
    while not first:
        _require_success(child)
        first = take()

    def total() -> int | None:
        """Read the child's only word, once it has ended."""
        if child.poll() is None or child.stdout is None:
            return None
        _require_success(child)
        if not said:
            said.append(int(child.stdout.read()) - first)
        return said[0]

    said: list[int] = []
    return _take_all(take, total)


def _require_success(child: subprocess.Popen[str]) -> None:
    if child.poll():
        raise RuntimeError("the putting process failed")


if __name__ == "__main__":  # the putting process
    with ss.Channel(sys.argv[1], create=False) as the_channel:
        print(_put_for(put_step(the_channel, Shape(*json.loads(sys.argv[2])), sys.argv[3]), float(sys.argv[4])))
