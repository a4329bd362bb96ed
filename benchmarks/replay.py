"""Opening a channel with a long log: replay without a checkpoint, after a reboot, and with a checkpoint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import spillable_stream as ss
from benchmarks.durable_put import event_batch

TRANSACTIONS = 4_000
EVENTS = 1_000
FLOOR = "pread of every frame header"

_CHILD = """
import resource, sys
from spillable_stream import Channel
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
channel = Channel(sys.argv[1], create=False)
print(before // 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
channel.close(checkpoint=False)
"""


def make(directory: Path) -> Path:
    """Make a channel of 4 million events in 4,000 transactions that has no checkpoint."""
    path = directory / "backlog"
    options = {"minimum_required_space": 0, "checkpoint_on_close": False, "checkpoint_interval": 10**9}
    with ss.Channel(path, **options) as channel:
        batch = event_batch(channel.schema, EVENTS)
        for _ in range(TRANSACTIONS):
            with channel.put_transaction() as tx:
                tx.put_batch(batch)
    return path


def contestants(path: Path) -> dict[str, Callable[[Path], float]]:
    """Return what opens the channel at ``path``, in events a second."""

    def floor(_: Path) -> float:
        size = (path / "data" / "log-000001").stat().st_size // (2 * TRANSACTIONS)
        fd = os.open(path / "data" / "log-000001", os.O_RDONLY)
        started = time.perf_counter()
        for i in range(2 * TRANSACTIONS):
            os.pread(fd, 48, i * size)
        took = time.perf_counter() - started
        os.close(fd)
        return TRANSACTIONS * EVENTS / took

    def opened(rebooted: bool, checkpoint: bool) -> Callable[[Path], float]:
        def run(_: Path) -> float:
            shutil.rmtree(path / "checkpoint")
            (path / "checkpoint").mkdir()
            if checkpoint:
                with ss.Channel(path, create=False) as channel:
                    channel.close(checkpoint=True)
            if rebooted:
                (path / "head").unlink()
            started = time.perf_counter()
            channel = ss.Channel(path, create=False)
            took = time.perf_counter() - started
            assert channel.stats().channel_size == TRANSACTIONS * EVENTS
            channel.close(checkpoint=False)
            return TRANSACTIONS * EVENTS / took

        return run

    return {
        FLOOR: floor,
        "spillable_stream, from the log alone": opened(rebooted=False, checkpoint=False),
        "spillable_stream, after a reboot": opened(rebooted=True, checkpoint=False),
        "spillable_stream, with a checkpoint": opened(rebooted=False, checkpoint=True),
    }


def resident_mebibytes(path: Path) -> tuple[int, int]:
    """Return a process's peak resident memory before and after it opened the channel."""
    (path / "head").unlink()
    found = subprocess.run([sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True)
    before, after = found.stdout.split()
    return int(before), int(after)
