"""One power cut: a process writes, the power goes, another process reads what is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.power_cut.ledger import Ledger, Verdict, judge
from benchmarks.power_cut.machine import Machine, machine, scratch
from benchmarks.power_cut.rows import Row

__all__ = ["run_cycle"]

_ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 30.0
_ERROR_CHARACTERS = 120
_MOST_TRANSACTIONS = 400  # a product that does not sync would fill the disk before the cut


def run_cycle(row: Row, kind: str, seed: str) -> Verdict:
    """Cut the power once and return the verdict.

    Args:
        row: the product.
        kind: the file system.
        seed: decides what is written and when the power goes, as far as a clock allows.
    """
    with scratch() as place, machine(kind, place) as made:
        ledger = _write_and_cut(row, made, place, seed)
        made.boot()
        left = _read(row, made, place)
        return judge(ledger, seed, left.found, left.error, left.reported)


@contextmanager
def _worker(place: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker in a process group of its own, which is killed at the end, with what the worker started."""
    with (place / "stderr").open("wb") as stderr:
        command = [sys.executable, "-m", "benchmarks.power_cut.worker", *map(str, arguments)]
        worker = subprocess.Popen(command, cwd=_ROOT, stdout=stderr, stderr=stderr, start_new_session=True)
        try:
            yield worker
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def _write_and_cut(row: Row, made: Machine, place: Path, seed: str) -> Ledger:
    """Let a worker write until the power is cut, some acknowledgements later, and return its ledger."""
    rng, path = random.Random(seed), place / "ledger"
    # Now and then right after the first one: the directory and the files are new then, too.
    acknowledgements = 1 if rng.random() < 0.25 else rng.randint(2, 50)
    # Half of the cuts come while nothing is under way: what follows a put may sync what it left unsynced.
    at_rest = rng.random() < 0.5
    transactions = acknowledgements if at_rest else _MOST_TRANSACTIONS
    # In half of them the kernel has written everything back once, as it does after half a minute: a product that
    # does not sync finds some of its files as they were then, and others as they are.
    written_back = rng.choice([0, rng.randint(1, acknowledgements)])
    arguments = (row.name, made.disk, made.memory, path, seed, transactions, written_back)
    with _worker(place, "write", *arguments) as worker:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not path.exists() or path.read_bytes().count(b"stored") < acknowledgements:
            if worker.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{row.name} does not get on: {_last_line(place / 'stderr')}")
            time.sleep(0.0005)
        time.sleep(0.02 if at_rest else rng.choice([0, rng.uniform(0, 0.01)]))
        certain = path.stat().st_size
        made.cut()
    return Ledger.parse(path.read_bytes(), certain)


@dataclass
class _Left:
    """What the reading process found."""

    found: list[bytes] = field(default_factory=list)
    reported: list[tuple[int, int]] = field(default_factory=list)
    error: str = ""


def _read(row: Row, made: Machine, place: Path) -> _Left:
    """Let a second worker read what is left."""
    result, left = place / "result", _Left()
    with _worker(place, "read", row.name, made.disk, made.memory, result) as worker:
        try:
            code = worker.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            left.error = f"it hangs for {_PATIENCE_SECONDS:.0f} seconds"
        else:
            if code:
                left.error = f"it dies of {signal.Signals(-code).name}" if code < 0 else _last_line(place / "stderr")
    for line in result.read_text().splitlines() if result.exists() else ():
        match json.loads(line):
            case ["body", text]:
                left.found.append(text.encode("latin-1", "replace"))
            case ["reported", ranges]:
                left.reported = [(first, last) for first, last in ranges]
            case ["error", text]:
                left.error = text.replace(str(made.disk), "…").strip()[:_ERROR_CHARACTERS]
    return left


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no word of why"
