"""Durable puts that go on: in a steady state, where a consumer keeps up, and while a backlog grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.events import Shape
from benchmarks.floors import APPEND, PREALLOCATED, WRITTEN, Blocks, Disk, log_bytes
from benchmarks.ours import BATCHES, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan, rate, rates_in_turn

__all__ = ["CHECKPOINTS", "SHAPES", "disk_in_turn", "groups", "growing_name", "steady", "steady_name"]

CHECKPOINTS = "checkpoints"

SHAPES = (Shape(1_000, 100), Shape(100, 100), Shape(1, 100))
_ROUNDS = 3
_CHECKPOINTED = SHAPES[0]
_INTERVALS_MS = (30_000, 1_000, 100)
_BLOCKS = {APPEND: Blocks.NEW, PREALLOCATED: Blocks.ALLOCATED, WRITTEN: Blocks.WRITTEN}
_WARM_UP_PART = 0.1
_UNTIL_USED_AGAIN_PART = 0.4  # by then the channel uses its data files again: three or four of them are written first


def steady_name(shape: Shape) -> str:
    """Return the name of a shape's group in the steady state."""
    return f"steady {shape}"


def growing_name(shape: Shape) -> str:
    """Return the name of a shape's group whose backlog grows."""
    return f"growing {shape}"


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield the groups of every shape."""
    seconds = plan.sustained_seconds
    for shape in SHAPES:
        contestants = {name: disk_in_turn(shape, seconds, blocks) for name, blocks in _BLOCKS.items()}
        contestants[BATCHES] = steady(shape, BATCHES, seconds, seconds * _UNTIL_USED_AGAIN_PART)
        title = f"A steady state: transactions of {shape}"
        yield Group(steady_name(shape), title, "events/s", WRITTEN, contestants, _ROUNDS)
    warm_up_seconds = seconds * _UNTIL_USED_AGAIN_PART
    contestants = {
        checkpoints_name(ms): steady(_CHECKPOINTED, BATCHES, seconds, warm_up_seconds, checkpoint_interval=ms)
        for ms in _INTERVALS_MS
    }
    title = f"What checkpoints cost: a steady state of transactions of {_CHECKPOINTED}"
    yield Group(CHECKPOINTS, title, "events/s", checkpoints_name(_INTERVALS_MS[0]), contestants, _ROUNDS)
    for shape in SHAPES:
        contestants = {name: _disk_growing(shape, seconds, blocks) for name, blocks in _BLOCKS.items()}
        contestants[BATCHES] = _growing(shape, seconds)
        title = f"A growing backlog: transactions of {shape}"
        yield Group(growing_name(shape), title, "events/s", PREALLOCATED, contestants, _ROUNDS)


def checkpoints_name(interval_ms: int) -> str:
    """Return the name of a channel that makes a checkpoint so often."""
    return f"`checkpointInterval` {interval_ms:,} ms"


def steady(shape: Shape, kind: str, seconds: float, warm_up_seconds: float, **options: int) -> Contestant:
    """Return who puts some transactions, takes them, and so on, with options of the channel."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, **options) as channel:
            put, take = put_step(channel, shape, kind), take_step(channel, shape.events, kind)
            return rates_in_turn(put, take, seconds, warm_up_seconds)

    return run


def disk_in_turn(shape: Shape, seconds: float, blocks: Blocks) -> Contestant:
    """Return who writes and syncs as many bytes, and reads them again, in no more than three files."""

    def run(directory: Path) -> Figures:
        disk = Disk(directory, log_bytes(shape, directory), blocks)
        try:
            warm_up_seconds = seconds * _WARM_UP_PART
            put, take = lambda: shape.events * disk.write(), lambda: shape.events * disk.read()
            return rates_in_turn(put, take, seconds, warm_up_seconds)
        finally:
            disk.close()

    return run


def _growing(shape: Shape, seconds: float) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory) as channel:
            return {"put": rate(put_step(channel, shape, BATCHES), seconds)}

    return run


def _disk_growing(shape: Shape, seconds: float, blocks: Blocks) -> Contestant:
    def run(directory: Path) -> Figures:
        disk = Disk(directory, log_bytes(shape, directory), blocks, grow=True)
        try:
            return {"put": rate(lambda: shape.events * disk.write(), seconds)}
        finally:
            disk.close()

    return run
