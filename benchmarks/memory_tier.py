"""The memory tier: puts and takes beside the machine's own copy of the same bytes.

For comparison, Flume 1.11's SpillableMemoryChannel moves 4.3 to 4.7 million events a second while
nothing spills, whatever their size: it passes references within one process.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import spillable_stream as ss

EVENTS = 1_000
TRANSACTIONS = {100: 2_000, 1024: 500}
FLOOR = "memory copy of the same bytes, in and out"


def _batch(schema: pa.Schema, size: int) -> pa.RecordBatch:
    headers = pa.array([[]] * EVENTS, schema.field("headers").type)
    return pa.RecordBatch.from_arrays([headers, pa.array([b"x" * size] * EVENTS, pa.binary())], schema=schema)


def _open(directory: Path, size: int) -> ss.Channel:
    """Open a channel whose memory has room for everything, and use its files once."""
    capacity = TRANSACTIONS[size] * EVENTS
    options = {"memory_capacity": capacity, "byte_capacity": 4 * capacity * (size + 20), "avg_event_size": size}
    channel = ss.Channel(directory / "c", minimum_required_space=0, checkpoint_on_close=False, **options)
    put(channel, size, 20)
    take(channel, 20, EVENTS)
    return channel


def put(channel: ss.Channel, size: int, transactions: int) -> None:
    """Put so many transactions."""
    batch = _batch(channel.schema, size)
    for _ in range(transactions):
        with channel.put_transaction() as tx:
            tx.put_batch(batch)


def take(channel: ss.Channel, transactions: int, limit: int) -> None:
    """Take what so many transactions put, up to ``limit`` events in each transaction."""
    left = transactions * EVENTS
    while left:
        with channel.take_transaction() as tx:
            table = tx.take_batch(limit, timeout_seconds=10)
            left -= table.num_rows if table is not None else 0


def copies(size: int) -> Callable[[Path], float]:
    """Return a contestant that copies as many bytes into a buffer and out of it."""

    def run(directory: Path) -> float:
        data = bytes(EVENTS * size)
        buffer = bytearray(64 * len(data))
        view = memoryview(buffer)
        buffer[:] = bytes(len(buffer))
        started = time.perf_counter()
        for i in range(TRANSACTIONS[size]):
            at = i % 64 * len(data)
            view[at : at + len(data)] = data
            bytes(view[at : at + len(data)])
        return TRANSACTIONS[size] * EVENTS / (time.perf_counter() - started)

    return run


def one_after_the_other(size: int, which: str) -> Callable[[Path], float]:
    """Return a contestant that puts everything and then takes it, and gives the rate of one of the two."""

    def run(directory: Path) -> float:
        with _open(directory, size) as channel:
            begin = time.perf_counter()
            put(channel, size, TRANSACTIONS[size])
            middle = time.perf_counter()
            take(channel, TRANSACTIONS[size], EVENTS)
            end = time.perf_counter()
        return TRANSACTIONS[size] * EVENTS / (middle - begin if which == "put" else end - middle)

    return run


def two_threads(size: int, limit: int) -> Callable[[Path], float]:
    """Return a contestant with one putting and one taking thread."""

    def run(directory: Path) -> float:
        with _open(directory, size) as channel:
            putting = threading.Thread(target=put, args=(channel, size, TRANSACTIONS[size]))
            begin = time.perf_counter()
            putting.start()
            take(channel, TRANSACTIONS[size], limit)
            putting.join()
            return TRANSACTIONS[size] * EVENTS / (time.perf_counter() - begin)

    return run


def two_processes(size: int, limit: int) -> Callable[[Path], float]:
    """Return a contestant with one putting and one taking process; the clock starts with the first event taken."""

    def run(directory: Path) -> float:
        with _open(directory, size) as channel:
            child = subprocess.Popen([sys.executable, "-m", __name__, str(channel.path), str(size)])
            take(channel, 1, EVENTS)
            begin = time.perf_counter()
            take(channel, TRANSACTIONS[size] - 1, limit)
            end = time.perf_counter()
            if child.wait():
                raise RuntimeError("the putting process failed")
        return (TRANSACTIONS[size] - 1) * EVENTS / (end - begin)

    return run


def contestants(size: int) -> dict[str, Callable[[Path], float]]:
    """Return what is measured for events of ``size`` bytes."""
    return {
        FLOOR: copies(size),
        "put": one_after_the_other(size, "put"),
        "take and commit": one_after_the_other(size, "take"),
        "end to end, 2 threads, takes of 1,000": two_threads(size, EVENTS),
        "end to end, 2 threads, takes of up to 10,000": two_threads(size, 10 * EVENTS),
        "end to end, 2 processes, takes of 1,000": two_processes(size, EVENTS),
        "end to end, 2 processes, takes of up to 10,000": two_processes(size, 10 * EVENTS),
    }


if __name__ == "__main__":  # the putting process
    with ss.Channel(sys.argv[1]) as the_channel:
        put(the_channel, int(sys.argv[2]), TRANSACTIONS[int(sys.argv[2])])
