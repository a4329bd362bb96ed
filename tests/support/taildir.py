"""Growing files, and a source that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spillable_stream.flow.sources.base import BatchProcessor, Status
from spillable_stream.flow.sources.taildir import TailDir

__all__ = ["Clock", "append", "opened", "read_all", "source"]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 2e9  # later than any file of a test: what is not touched is idle

    def __call__(self) -> float:
        return self.seconds


def source(logs: Path, pattern: str = "app.*", **options: Any) -> TailDir:
    """Return a source that reads files of a directory."""
    options = {"idle_timeout": 2**40, **options}
    return TailDir({"g": f"{logs}/{pattern}"}, position_file=logs.parent / "positions.json", **options)


def read_all(tail: TailDir, into: BatchProcessor) -> None:
    """Read until there is nothing."""
    while tail.poll(into) is Status.READY:
        pass


def append(path: Path, text: str) -> None:
    """Append to a file."""
    with path.open("a") as f:
        f.write(text)


def opened(tail: TailDir, into: BatchProcessor) -> TailDir:
    """Return a source, opened."""
    tail.open(into)
    return tail
