"""Durable puts and takes where each sync takes longer than here: what a ratio to the disk's limit depends on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.events import Shape
from benchmarks.floors import WRITTEN, written
from benchmarks.ours import BATCHES, puts_and_takes
from benchmarks.rounds import Contestant, Figures, Group, Plan

__all__ = ["groups"]

_EXTRA_MS = (0.25, 1.0, 4.0)  # a local SSD, one in a cloud, a network's disk
_SLEEPS = 50
_SHAPES = (Shape(1, 100), Shape(1_000, 100))


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield a group for each shape and each disk."""
    slept = {extra_ms: _slept_ms(extra_ms) for extra_ms in _EXTRA_MS}
    for shape in _SHAPES:
        for extra_ms in _EXTRA_MS:
            contestants = {
                WRITTEN: _slowed(written(shape, plan.seconds), extra_ms),
                BATCHES: _slowed(puts_and_takes(shape, BATCHES, plan.seconds), extra_ms),
            }
            title = f"Each sync takes {slept[extra_ms]:.2f} ms more: transactions of {shape}"
            yield Group(f"slow disk {extra_ms:g} ms, {shape}", title, "events/s", WRITTEN, contestants)


def _slept_ms(asked_ms: float) -> float:
    """Return how long a sleep of some milliseconds really takes, which is longer."""
    began = time.perf_counter()
    for _ in range(_SLEEPS):
        time.sleep(asked_ms / 1000)
    return (time.perf_counter() - began) / _SLEEPS * 1000


def _slowed(contestant: Contestant, extra_ms: float) -> Contestant:
    def run(directory: Path) -> Figures:
        with _slower_syncs(extra_ms / 1000):
            return contestant(directory)

    return run


@contextmanager
def _slower_syncs(seconds: float) -> Iterator[None]:
    """Let each sync of this process sleep first."""
    reals = {name: getattr(os, name) for name in ("fsync", "fdatasync")}

    def slower(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            time.sleep(seconds)
            real(descriptor)

        return sync

    try:
        for name, real in reals.items():
            setattr(os, name, slower(real))
        yield
    finally:
        for name, real in reals.items():
            setattr(os, name, real)
