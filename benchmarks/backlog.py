"""A long backlog: how long it takes to open the channel, and how much memory that takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.events import Shape
from benchmarks.ours import BATCHES, new_channel, put_step
from benchmarks.rounds import Contestant, Figures, Group, Plan

__all__ = [
    "CHECKPOINT",
    "LARGE",
    "LOG",
    "OPENED",
    "REBOOT",
    "Backlog",
    "groups",
    "large_name",
    "open_name",
    "resident_name",
]

LOG = "from the log, without a checkpoint"
REBOOT = "from the log, after a reboot"
CHECKPOINT = "with a checkpoint"
OPENED = "opened, and 1,000 events taken"
LARGE = "large batches"
_HEADERS = "pread of every frame's header"
_IMPORTED = "imported"
_HEADER_BYTES = 48
_FRAMES = 2  # of a transaction: the events and the commit
_SHAPE = Shape(1_000, 100)
_LARGE_SHAPE = Shape(1_000_000, 1)
_MOST_ROUNDS = 3

_CHILD = """
import sys
import spillable_stream as ss
def resident_bytes():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
before = resident_bytes()
channel = ss.Channel(sys.argv[1], create=False)
with channel.take_transaction() as tx:
    tx.take_batch(1_000)
    tx.rollback()
print(before, resident_bytes())
channel.close(checkpoint=False)
"""


def open_name(events: int) -> str:
    """Return the name of the group that opens such a backlog."""
    return f"open {events:,}"


def resident_name(events: int) -> str:
    """Return the name of the group that measures the memory of a process with such a backlog."""
    return f"resident {events:,}"


def large_name(events: int) -> str:
    """Return the same for a backlog of large batches."""
    return f"resident {events:,} in {LARGE}"


def groups(plan: Plan, directory: Path) -> Iterator[Group]:
    """Yield the groups of each backlog; the channel grows between them."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        backlog = Backlog(Path(place), _SHAPE)
        for events in plan.backlogs_events:
            backlog.grow(events)
            title = f"Open with a backlog of {events:,} events, in transactions of {_SHAPE}"
            yield Group(open_name(events), title, "ms", _HEADERS, backlog.opens(), _MOST_ROUNDS)
            title = f"Resident memory of a process at a backlog of {events:,} events, in transactions of {_SHAPE}"
            yield Group(resident_name(events), title, "MB", _IMPORTED, backlog.resident(), _MOST_ROUNDS)
    with tempfile.TemporaryDirectory(dir=directory) as place:
        backlog = Backlog(Path(place), _LARGE_SHAPE)
        backlog.grow(events := plan.large_backlog_events)
        title = f"Resident memory of a process at a backlog of {events:,} events, in transactions of {_LARGE_SHAPE}"
        yield Group(large_name(events), title, "MB", _IMPORTED, backlog.resident(), _MOST_ROUNDS)


class Backlog:
    """A channel that grows, and never creates a checkpoint of its own.

    Args:
        directory: where it is.
        shape: of its transactions.
    """

    def __init__(self, directory: Path, shape: Shape) -> None:
        self._directory, self._shape = directory, shape
        self._events = 0
        self._path = directory / "channel"

    def grow(self, events: int) -> None:
        """Put until there are so many events."""
        options = {"checkpoint_interval": 10**9, "transaction_capacity": 10**7, "overflow_capacity": 10**10}
        with new_channel(self._directory, **options) as channel:
            put = put_step(channel, self._shape, BATCHES)
            while self._events < events:
                self._events += put()

    def opens(self) -> dict[str, Contestant]:
        """Return the ways to open the channel, beside reading as many frames' headers."""
        return {
            _HEADERS: self._read_headers,
            LOG: lambda _: self._open(),
            REBOOT: lambda _: self._open(rebooted=True),
            CHECKPOINT: lambda _: self._open(checkpoint=True),
        }

    def resident(self) -> dict[str, Contestant]:
        """Return one process, before it opens the channel and after it has taken something from it."""
        return {_IMPORTED: lambda _: {"resident": self._resident()[0]}, OPENED: lambda _: self._resident_opened()}

    def _resident_opened(self) -> Figures:
        return {"resident": self._resident()[1]}

    def _read_headers(self, _: Path) -> Figures:
        files = [path for path in (self._path / "data").iterdir() if path.name.startswith("log-")]
        each = max(1, _FRAMES * self._events // self._shape.events // len(files))
        started = time.perf_counter()
        for path in files:
            size = path.stat().st_size
            fd = os.open(path, os.O_RDONLY)
            for i in range(each):
                os.pread(fd, _HEADER_BYTES, i * size // each)
            os.close(fd)
        return {"open": (time.perf_counter() - started) * 1000}

    def _open(self, rebooted: bool = False, checkpoint: bool = False) -> Figures:
        """Open the channel once and return the time; its files are in the page cache."""
        import spillable_stream as ss

        shutil.rmtree(self._path / "checkpoint")
        (self._path / "checkpoint").mkdir()
        if checkpoint:
            ss.Channel(self._path, create=False).close(checkpoint=True)
        if rebooted:
            (self._path / "head").unlink()
        started = time.perf_counter()
        channel = ss.Channel(self._path, create=False)
        took_ms = (time.perf_counter() - started) * 1000
        found = channel.stats().channel_size
        channel.close(checkpoint=False)
        if found != self._events:
            raise AssertionError(f"{found:,} of {self._events:,} events are there")
        return {"open": took_ms}

    def _resident(self) -> tuple[float, float]:
        command = [sys.executable, "-c", _CHILD, str(self._path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        before, after = (int(word) / 1e6 for word in said.split())
        return before, after
