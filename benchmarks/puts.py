"""Durable puts, and takes with their commits, beside plain writes and syncs of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from benchmarks.events import Shape
from benchmarks.floors import APPEND, PREALLOCATED, WRITTEN, append, grouped, preallocated, written
from benchmarks.ours import BATCHES, EVENTS, puts_and_takes
from benchmarks.rounds import Contestant, Group, Plan

__all__ = ["SEQUENTIAL", "THREADS", "group_name", "groups", "threaded"]

THREADS = (1, 2, 4, 8)
SEQUENTIAL = f"sequential writing, one sync per {THREADS[-1]} transactions"
# What `make bench` measures: a shape, by how many threads, and whether as Python events as well.
_SOME = (
    (Shape(1, 100), THREADS, True),
    (Shape(1_000, 100), THREADS, True),
    (Shape(1_000, 100, 3), (1,), True),
    (Shape(100, 100), (1,), True),
    (Shape(10_000, 100), (1,), False),
    (Shape(1_000, 1024), (1,), False),
    (Shape(100, 16 << 10), (1,), False),
)
_MOST_TRANSACTION_BYTES = 64 << 20  # of 8 threads at once


def group_name(shape: Shape) -> str:
    """Return the name of a shape's group."""
    return f"put {shape}"


def threaded(kind: str, threads: int) -> str:
    """Return a contestant's name."""
    return kind if threads == 1 else f"{kind}, {threads} threads"


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield a group for every shape."""
    for shape, threads, with_events in _all() if plan.full else _SOME:
        yield _group(shape, threads, with_events, plan.seconds)


def _all() -> Iterator[tuple[Shape, Sequence[int], bool]]:
    for headers, body_bytes, events in product((0, 3), (100, 1024, 16 << 10), (1, 100, 1_000, 10_000)):
        shape = Shape(events, body_bytes, headers)
        yield shape, THREADS if shape.payload_bytes <= _MOST_TRANSACTION_BYTES else (1,), True


def _group(shape: Shape, threads: Sequence[int], with_events: bool, seconds: float) -> Group:
    contestants: dict[str, Contestant] = {
        APPEND: append(shape, seconds),
        PREALLOCATED: preallocated(shape, seconds),
        WRITTEN: written(shape, seconds),
    }
    if len(threads) > 1:
        contestants[SEQUENTIAL] = grouped(shape, seconds, THREADS[-1])
    for kind, count in product((BATCHES, EVENTS), threads):
        if kind == BATCHES or (with_events and count == 1):
            contestants[threaded(kind, count)] = puts_and_takes(shape, kind, seconds, count)
    title = f"Durable put, and take and commit: transactions of {shape}"
    return Group(group_name(shape), title, "events/s", WRITTEN, contestants)
