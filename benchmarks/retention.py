"""What it costs to keep what was taken, and to go back to it."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import spillable_stream as ss
from benchmarks.events import Shape, event_batch
from benchmarks.ours import BATCHES, new_channel, put_step, take_step
from benchmarks.rounds import Contestant, Figures, Group, Plan
from spillable_stream.state import block_index
from spillable_stream.storage import access, file, filesystem

__all__ = ["BY_AGE", "BY_SIZE", "KEPT", "OFF", "UNTAKEN", "Counting", "calls_name", "cpu_name", "groups", "rewind_name"]

OFF = "off"
BY_SIZE = "retentionBytes = 64 MiB"
BY_AGE = "retentionMs = 1 hour"
_WAYS: dict[str, dict[str, Any]] = {
    OFF: {},
    BY_SIZE: {"retention_bytes": 64 << 20},
    BY_AGE: {"retention_ms": 3_600_000},
}
_TIERS: dict[str, dict[str, Any]] = {
    "disk": {},
    "memory": {"memory_capacity": 1 << 20, "byte_capacity": 256 << 20},
}
_SHAPES = (Shape(1, 100), Shape(1_000, 100))
_WARM_UP = 20
_COUNTED = 200

UNTAKEN = "untaken"
KEPT = "kept: every group has taken them"
_FRAME = Shape(2_500, 1)
_FRAMES_OF_A_TRANSACTION = 100
_BLOCK_BYTES = 1024  # so that each frame is a block: as many as with events of 100 bytes, in a hundredth of the space
_FILE_BYTES = 64 << 20  # as many files as 10 GiB have
_MOST_ROUNDS = 3


def cpu_name(tier: str, shape: Shape) -> str:
    """Return the name of the group that measures processor time."""
    return f"retention cpu {tier} {shape}"


def calls_name(tier: str, shape: Shape) -> str:
    """Return the name of the group that counts system calls."""
    return f"retention calls {tier} {shape}"


def rewind_name(events: int) -> str:
    """Return the name of the group that goes back to so many kept events."""
    return f"rewind {events:,}"


def groups(plan: Plan, directory: Path) -> Iterator[Group]:
    """Yield the groups of both tiers, and of a rewind."""
    for tier, options in _TIERS.items():
        for shape in _SHAPES:
            title = f"{tier.capitalize()} tier, transactions of {shape}: processor time"
            contestants = {name: _cpu(shape, plan.seconds, {**options, **way}) for name, way in _WAYS.items()}
            yield Group(cpu_name(tier, shape), title, "µs", OFF, contestants)
            title = f"{tier.capitalize()} tier, transactions of {shape}: system calls on files"
            contestants = {name: _calls(shape, {**options, **way}) for name, way in _WAYS.items()}
            yield Group(calls_name(tier, shape), title, "", OFF, contestants, 1)
    with tempfile.TemporaryDirectory(dir=directory) as place:
        backlog = _Backlog(Path(place), plan.large_backlog_events)
        title = f"Opening a channel with {plan.large_backlog_events:,} events, and going to the first of them"
        contestants = {UNTAKEN: lambda _: backlog.untaken(), KEPT: lambda _: backlog.kept()}
        yield Group(rewind_name(plan.large_backlog_events), title, "ms", UNTAKEN, contestants, _MOST_ROUNDS)


# ── a put and a take ────────────────────────────────────────────────────────────────────────────


@contextmanager
def _warm(directory: Path, shape: Shape, options: dict[str, Any]) -> Iterator[tuple[Callable[[], int], ...]]:
    """Yield what puts a transaction, and what takes one, on a channel that has done both for a while."""
    with new_channel(directory, **options) as channel:
        put, take = put_step(channel, shape, BATCHES), take_step(channel, shape.events, BATCHES)
        for _ in range(_WARM_UP):
            put()
            take()
        yield put, take


def _cpu(shape: Shape, seconds: float, options: dict[str, Any]) -> Contestant:
    """Return who puts and takes in turn, and tells the processor time of each, and of all threads together."""

    def run(directory: Path) -> Figures:
        with _warm(directory, shape, options) as (put, take):
            spent = {"put": 0.0, "take": 0.0}
            count, whole, end = 0, time.process_time(), time.perf_counter() + seconds
            while not count or time.perf_counter() < end:
                for name, step in (("put", put), ("take", take)):
                    began = time.thread_time()
                    step()
                    spent[name] += time.thread_time() - began
                count += 1
            both = time.process_time() - whole
        return {**{name: s / count * 1e6 for name, s in spent.items()}, "both, all threads": both / count * 1e6}

    return run


def _calls(shape: Shape, options: dict[str, Any]) -> Contestant:
    """Return who puts and takes in turn, and tells how many system calls on files each takes, the caller's own."""

    def run(directory: Path) -> Figures:
        with _warm(directory, shape, options) as (put, take), counting() as calls:
            counts = {"put": 0, "take": 0}
            for _ in range(_COUNTED):
                for name, step in (("put", put), ("take", take)):
                    before = calls.count
                    step()
                    counts[name] += calls.count - before
        return {name: count / _COUNTED for name, count in counts.items()}

    return run


class Counting:
    """The ``os`` module, with a count of the calls of one thread.

    Attributes:
        count: how many calls there were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if not callable(found) or isinstance(found, type) or name in ("fspath", "fsencode", "fsdecode"):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.count += threading.get_ident() == self._thread
            return found(*arguments, **named)

        return call


@contextmanager
def counting() -> Iterator[Counting]:
    """Count the calls by which this thread reads and changes a channel's files."""
    calls = Counting()
    with ExitStack() as stack:
        for module in (access, file, filesystem):
            stack.enter_context(mock.patch.object(module, "os", calls))
        yield calls


# ── going back ──────────────────────────────────────────────────────────────────────────────────


class _Backlog:
    """Two channels with the same events: in one nobody has taken them, the other one keeps them.

    Args:
        directory: where they are.
        events: how many there are.
    """

    def __init__(self, directory: Path, events: int) -> None:
        self._directory = directory
        self._events = events

    def untaken(self) -> Figures:
        """Open the channel and take the first events."""
        with self._opened("untaken") as (channel, open_ms):
            return {"open": open_ms, "first take": _first_take_ms(channel)}

    def kept(self) -> Figures:
        """Open the channel, go back to its first event and take some."""
        with self._opened("kept") as (channel, open_ms):
            consumer = channel.consumer("default")
            began = time.perf_counter()
            consumer.seek(0)
            seek_ms = (time.perf_counter() - began) * 1000
            take_ms = _first_take_ms(channel)
            consumer.seek(self._events)
            channel.checkpoint()
        return {"open": open_ms, "first take": take_ms, "seek": seek_ms}

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[ss.Channel, float]]:
        path = self._directory / name / "channel"
        with mock.patch.object(block_index, "BLOCK_BYTES", _BLOCK_BYTES):
            if not path.exists():
                self._make()
            began = time.perf_counter()
            channel = ss.Channel(path, create=False)
            open_ms = (time.perf_counter() - began) * 1000
            try:
                yield channel, open_ms
            finally:
                channel.close(checkpoint=False)

    def _make(self) -> None:
        untaken, kept = self._directory / "untaken", self._directory / "kept"
        untaken.mkdir()
        options = {"overflow_capacity": 10**10, "transaction_capacity": 10**7, "max_inline_bytes": 1 << 30}
        with new_channel(untaken, compression="zstd", max_file_size=_FILE_BYTES, **options) as channel:
            channel.consumer("default")
            batch = event_batch(channel.schema, _FRAME)
            left = self._events // _FRAME.events
            while left > 0:
                with channel.put_transaction() as tx:
                    for _ in range(min(left, _FRAMES_OF_A_TRANSACTION)):
                        tx.put_batch(batch)
                left -= _FRAMES_OF_A_TRANSACTION
            channel.checkpoint()
        shutil.copytree(untaken, kept)
        with ss.Channel(kept / "channel", retention_ms=10 * 365 * 86_400_000) as channel:
            consumer = channel.consumer("default")
            consumer.commit(consumer.claim(self._events))
            channel.checkpoint()


def _first_take_ms(channel: ss.Channel) -> float:
    """Return how long it takes to take the first events, in milliseconds; they are given back."""
    began = time.perf_counter()
    with channel.take_transaction() as tx:
        table = tx.take_batch(1_000)
        if table is None or table.column("write_order_id")[0].as_py() != 1:
            raise AssertionError("the first event is not there")
        took_ms = (time.perf_counter() - began) * 1000
        tx.rollback()
    return took_ms
