"""What the channel takes beside time: bytes on disk for an event, memory as it ages, and the time to import it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import psutil

from benchmarks.aging import age
from benchmarks.events import Shape
from benchmarks.ours import BATCHES, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan

__all__ = ["AGE", "IMPORT", "IMPORTED", "OLD", "PANDAS", "groups"]

IMPORT, PANDAS = "import", "pandas"
IMPORTED = "spillable_stream, after pyarrow"
_AGE_SECONDS = 2.0
AGE, OLD = "age", f"{_AGE_SECONDS:.0f} s of puts and takes"
_PYARROW = "pyarrow"
_BODIES = "the bodies alone"
_SOME = (Shape(1_000, 100), Shape(1_000, 100, 3), Shape(100, 16 << 10))
_COMPRESSIONS = ("none", "lz4", "zstd")
_AGE_SHAPE = Shape(1_000, 100)
_AGE_BACKLOG_TRANSACTIONS = 100
_AGE_WARM_UP = 3  # how often the backlog is replaced before the first look

_CHILD = """
import importlib, sys, time
if sys.argv[1] != "pyarrow":
    import pyarrow
started = time.perf_counter()
importlib.import_module(sys.argv[1])
print((time.perf_counter() - started) * 1000, int("pandas" in sys.modules))
"""


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield the groups of bytes, of age and of the import."""
    for shape in _shapes(plan):
        contestants: dict[str, Contestant] = {_BODIES: _body_bytes(shape)}
        contestants.update({f"compression = {name}": _disk_bytes(shape, name) for name in _COMPRESSIONS})
        title = f"Bytes on disk for an event: transactions of {shape}"
        yield Group(f"bytes {shape}", title, "B", _BODIES, contestants, 1)
    backlog_events = _AGE_SHAPE.events * _AGE_BACKLOG_TRANSACTIONS
    title = f"Resident memory while the {backlog_events:,} events of a backlog are replaced again and again"
    yield Group(AGE, title, "MB", "", {OLD: lambda place: age(__name__, place, _AGE_SECONDS)}, 3)
    contestants = {
        _PYARROW: lambda _: {"import": _import("pyarrow")[0]},
        IMPORTED: lambda _: {"import": _import("spillable_stream")[0]},
    }
    yield Group(IMPORT, "Import, in a new process", "ms", _PYARROW, contestants)
    contestants = {IMPORTED: lambda _: {"imported": _import("spillable_stream")[1]}}
    yield Group(PANDAS, "Whether that imports pandas, too: 1 if so", "", "", contestants, 1)


def _shapes(plan: Plan) -> Iterator[Shape]:
    if not plan.full:
        yield from _SOME
        return
    for headers, body_bytes, events in product((0, 3), (100, 1024, 16 << 10), (1, 100, 1_000)):
        yield Shape(events, body_bytes, headers)


def _body_bytes(shape: Shape) -> Contestant:
    return lambda _: {"bytes": shape.body_bytes}


def _disk_bytes(shape: Shape, compression: str) -> Contestant:
    """Return who measures how far the log's end moves for a transaction."""

    def run(directory: Path) -> Figures:
        with new_channel(directory, compression=compression, max_inline_bytes=1 << 30) as channel:
            put = put_step(channel, shape, BATCHES)
            put()
            before = channel.engine().positions.disk.offset
            put()
            return {"bytes": (channel.engine().positions.disk.offset - before) / shape.events}

    return run


def _age_here(directory: Path, seconds: float) -> tuple[int, int]:
    """Replace a backlog, as the child process of `age`, and return this process's resident bytes before and after."""
    with new_channel(directory, checkpoint_interval=500) as channel:
        put = put_step(channel, _AGE_SHAPE, BATCHES)
        take = take_step(channel, _AGE_SHAPE.events, BATCHES)
        for _ in range(_AGE_BACKLOG_TRANSACTIONS):
            put()
        for _ in range(_AGE_WARM_UP * _AGE_BACKLOG_TRANSACTIONS):
            put()
            take()
        young = psutil.Process().memory_info().rss
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            put()
            take()
        return young, psutil.Process().memory_info().rss


def _import(package: str) -> tuple[float, float]:
    """Return how many milliseconds a new process takes to import a package, and 1 if it has pandas then."""
    command = [sys.executable, "-c", _CHILD, package]
    took_ms, pandas = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(took_ms), float(pandas)


if __name__ == "__main__":  # the process that grows old
    print(*_age_here(Path(sys.argv[1]), float(sys.argv[2])))
