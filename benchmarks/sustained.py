"""Durable puts that last: in a steady state, where a consumer keeps up, and while a backlog grows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import spillable_stream as ss
from benchmarks.events import Shape
from benchmarks.floors import APPEND, PREALLOCATED, WRITTEN, Blocks, Disk, log_bytes
from benchmarks.ours import BATCHES, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan, rate, rates_in_turn

__all__ = ["CHECKPOINTS", "SHAPES", "disk_in_turn", "groups", "growing_name", "once", "steady", "steady_name"]

CHECKPOINTS = "checkpoints"

SHAPES = (Shape(1_000, 100), Shape(100, 100), Shape(1, 100))
_ROUNDS = 3
_CHECKPOINTED = SHAPES[0]
_INTERVALS_MS = (30_000, 1_000, 100)
_BLOCKS = {APPEND: Blocks.NEW, PREALLOCATED: Blocks.ALLOCATED, WRITTEN: Blocks.WRITTEN}
_WARM_UP_PART = 0.1
_FILLING = Shape(1_000, 1024)
_FILES_BYTES = 320 << 20  # five data files: from the fourth or fifth on, a channel uses files again
_OTHERS_PART = 0.2  # of the time, where no target is at stake

Opened = Callable[[Path], AbstractContextManager[Callable[[], Figures]]]
"""What opens something in a directory and measures it again and again."""


def steady_name(shape: Shape) -> str:
    """Return the name of a shape's group in the steady state."""
    return f"steady {shape}"


def growing_name(shape: Shape) -> str:
    """Return the name of a shape's group whose backlog grows."""
    return f"growing {shape}"


def groups(plan: Plan, directory: Path) -> Iterator[Group]:
    """Yield the groups of every shape."""
    rounds = min(plan.rounds, _ROUNDS)
    seconds = plan.sustained_seconds / rounds
    for shape in SHAPES:
        opened = {name: disk_in_turn(shape, seconds / 2, blocks) for name, blocks in _BLOCKS.items()}
        opened[BATCHES] = steady(shape, BATCHES, seconds / 2)
        with kept_open(opened, directory) as contestants:
            title = f"A steady state: transactions of {shape}"
            yield Group(steady_name(shape), title, "events/s", WRITTEN, contestants, rounds)
    opened = {
        checkpoints_name(ms): steady(_CHECKPOINTED, BATCHES, seconds / 2 * _OTHERS_PART, checkpoint_interval=ms)
        for ms in _INTERVALS_MS
    }
    with kept_open(opened, directory) as contestants:
        title = f"What checkpoints cost: a steady state of transactions of {_CHECKPOINTED}"
        yield Group(CHECKPOINTS, title, "events/s", checkpoints_name(_INTERVALS_MS[0]), contestants, rounds)
    for shape in SHAPES:
        each = seconds if shape == SHAPES[0] else seconds * _OTHERS_PART
        growing: dict[str, Contestant] = {name: _disk_growing(shape, each, blocks) for name, blocks in _BLOCKS.items()}
        growing[BATCHES] = _growing(shape, each)
        title = f"A growing backlog: transactions of {shape}"
        yield Group(growing_name(shape), title, "events/s", PREALLOCATED, growing, rounds)


def checkpoints_name(interval_ms: int) -> str:
    """Return the name of a channel that creates a checkpoint so often."""
    return f"`checkpointInterval` {interval_ms:,} ms"


@contextmanager
def kept_open(opened: Mapping[str, Opened], directory: Path) -> Iterator[dict[str, Contestant]]:
    """Yield contestants that are opened in their first round, and continue in the next one where they were.

    Args:
        opened: what opens each, and warms up.
        directory: where each has a directory of its own, until the end.
    """
    with ExitStack() as stack:
        measures: dict[str, Callable[[], Figures]] = {}

        def contestant(name: str) -> Contestant:
            def run(_: Path) -> Figures:
                if name not in measures:
                    place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
                    measures[name] = stack.enter_context(opened[name](place))
                return measures[name]()

            return run

        yield {name: contestant(name) for name in opened}


def once(opened: Opened) -> Contestant:
    """Return who opens something anew in each round, and measures once."""

    def run(directory: Path) -> Figures:
        with opened(directory) as measure:
            return measure()

    return run


def steady(shape: Shape, kind: str, seconds: float, **options: int) -> Opened:
    """Return what opens a channel that puts some transactions, takes them, and so on.

    Args:
        shape: of the transactions.
        kind: of events.
        seconds: for how long each of both is done, at most.
        options: the channel's.
    """

    @contextmanager
    def opened(place: Path) -> Iterator[Callable[[], Figures]]:
        with new_channel(place, **options) as channel:
            _fill_files(channel)
            put, take = put_step(channel, shape, kind), take_step(channel, shape.events, kind)
            rates_in_turn(put, take, seconds * _WARM_UP_PART, 0)
            yield lambda: rates_in_turn(put, take, seconds, 0)

    return opened


def _fill_files(channel: ss.Channel) -> None:
    """Put and take so many bytes that the channel uses its data files again, as the floor does from its beginning."""
    put, take = put_step(channel, _FILLING, BATCHES), take_step(channel, _FILLING.events, BATCHES)
    for _ in range(_FILES_BYTES // _FILLING.payload_bytes):
        put()
        take()


def disk_in_turn(shape: Shape, seconds: float, blocks: Blocks) -> Opened:
    """Return what opens the files of a floor that writes and syncs as many bytes, and reads them again: three files."""

    @contextmanager
    def opened(place: Path) -> Iterator[Callable[[], Figures]]:
        with closing(Disk(place, log_bytes(shape, place), blocks)) as disk:
            put, take = lambda: shape.events * disk.write(), lambda: shape.events * disk.read()
            rates_in_turn(put, take, seconds * _WARM_UP_PART, 0)
            yield lambda: rates_in_turn(put, take, seconds, 0)

    return opened


def _growing(shape: Shape, seconds: float) -> Contestant:
    def run(directory: Path) -> Figures:
        with new_channel(directory) as channel:
            return {"put": rate(put_step(channel, shape, BATCHES), seconds)}

    return run


def _disk_growing(shape: Shape, seconds: float, blocks: Blocks) -> Contestant:
    def run(directory: Path) -> Figures:
        with closing(Disk(directory, log_bytes(shape, directory), blocks, grow=True)) as disk:
            return {"put": rate(lambda: shape.events * disk.write(), seconds)}

    return run
