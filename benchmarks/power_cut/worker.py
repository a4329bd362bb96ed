"""The processes that use a product before and after the power cut: ``worker write|read ROW …``."""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import time
from pathlib import Path

from benchmarks.power_cut.ledger import bodies
from benchmarks.power_cut.rows import ROWS, Row

_REST_SECONDS = 60


def write(row: Row, disk: Path, memory: Path, ledger: Path, seed: str, transactions: int, written_back: int) -> None:
    """Put so many transactions, and now and then take; then rest until the power is cut.

    After transaction ``written_back`` the whole file system is written back, as the kernel does in its own time.
    """
    lines = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(*words: object) -> None:
        os.write(lines, (" ".join(map(str, words)) + "\n").encode())

    rng = random.Random(seed)
    store = row.open(disk, memory)
    for number in range(1, transactions + 1):
        some = bodies(seed, number)
        say("put", number, len(some))
        say("stored", number, store.put(some))
        if rng.random() < 0.2:
            say("take", count := rng.randint(1, 3))
            say("taken", *(body.split()[0].decode() for body in store.take(count)))
        if number == written_back:
            _write_back(disk)
        time.sleep(row.pause_seconds)
    time.sleep(_REST_SECONDS)


def _write_back(directory: Path) -> None:
    """Sync the file system of the directory, and no other: other experiments may be under way."""
    descriptor = os.open(directory, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
        raise OSError(ctypes.get_errno(), "syncfs")
    os.close(descriptor)


def read(row: Row, disk: Path, memory: Path, result: Path) -> None:
    """Write all that is left into a file, a line at a time, so that a crash leaves what was read before it."""
    with result.open("w", buffering=1) as lines:

        def say(kind: str, value: object) -> None:
            lines.write(json.dumps([kind, value]) + "\n")

        try:
            store = row.open(disk, memory)
        except Exception as e:
            say("error", f"{type(e).__name__}: {e}")
            return
        try:
            for body in store.read():
                say("body", body.decode("latin-1") if isinstance(body, bytes) else repr(body))
            say("reported", list(store.reported()))
        except Exception as e:
            say("error", f"{type(e).__name__}: {e}")
        finally:
            store.close()


if __name__ == "__main__":
    what, name, *places = sys.argv[1:6]
    the_row = next(row for row in ROWS if row.name == name)
    the_disk, the_memory, the_file = map(Path, places)
    if what == "write":
        write(the_row, the_disk, the_memory, the_file, sys.argv[6], int(sys.argv[7]), int(sys.argv[8]))
    else:
        read(the_row, the_disk, the_memory, the_file)
