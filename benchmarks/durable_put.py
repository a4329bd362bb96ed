"""Durable puts beside plain writes and syncs of the same bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import spillable_stream as ss

TRANSACTIONS = 300
EVENTS = 1_000
BODY = b"x" * 100
FLOOR = "write and fdatasync, appending"


def event_batch(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return events of 100 bytes without headers."""
    headers = pa.array([[]] * count, schema.field("headers").type)
    return pa.RecordBatch.from_arrays([headers, pa.array([BODY] * count, pa.binary())], schema=schema)


def _rate(work: Iterator[None]) -> float:
    """Return events a second over all but the first few transactions."""
    for _ in range(10):
        next(work)
    started = time.perf_counter()
    done = sum(1 for _ in work)
    return done * EVENTS / (time.perf_counter() - started)


def arrow_batches(directory: Path) -> float:
    """Put Arrow batches."""

    def work() -> Iterator[None]:
        with ss.Channel(directory / "c", minimum_required_space=0) as channel:
            batch = event_batch(channel.schema, EVENTS)
            for _ in range(TRANSACTIONS):
                with channel.put_transaction() as tx:
                    tx.put_batch(batch)
                yield

    return _rate(work())


def python_events(directory: Path) -> float:
    """Put Python events, each an object with no headers."""
    events = [ss.Event(BODY) for _ in range(EVENTS)]

    def work() -> Iterator[None]:
        with ss.Channel(directory / "c", minimum_required_space=0) as channel:
            for _ in range(TRANSACTIONS):
                with channel.put_transaction() as tx:
                    tx.put_many(events)
                yield

    return _rate(work())


def _bytes_of_a_transaction(directory: Path) -> int:
    """Return what one transaction takes in the log, as measured on a channel."""
    with ss.Channel(directory / "measure", minimum_required_space=0) as channel:
        batch = event_batch(channel.schema, EVENTS)
        ends = []
        for _ in range(2):
            with channel.put_transaction() as tx:
                tx.put_batch(batch)
            ends.append(channel.engine().positions.disk.offset)
    return ends[1] - ends[0]


def plain_writes(preallocated: bool) -> Callable[[Path], float]:
    """Return a contestant that writes and syncs as many bytes, and nothing else."""

    def run(directory: Path) -> float:
        data = bytes(_bytes_of_a_transaction(directory))
        fd = os.open(directory / "floor", os.O_RDWR | os.O_CREAT)
        if preallocated:
            os.posix_fallocate(fd, 0, TRANSACTIONS * len(data))
            os.fsync(fd)

        def work() -> Iterator[None]:
            for i in range(TRANSACTIONS):
                os.pwrite(fd, data, i * len(data))
                os.fdatasync(fd)
                yield

        try:
            return _rate(work())
        finally:
            os.close(fd)

    return run


CONTESTANTS = {
    FLOOR: plain_writes(preallocated=False),
    "write and fdatasync, preallocated": plain_writes(preallocated=True),
    "spillable_stream, Arrow batches": arrow_batches,
    "spillable_stream, Python events": python_events,
}
