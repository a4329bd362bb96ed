"""A process that can have no more threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

__all__ = ["no_threads"]


@contextmanager
def no_threads(times: int = 1_000_000, named: str = "") -> Iterator[list[str]]:
    """Refuse to start threads, as the system does, in the block.

    Args:
        times: how many starts are refused; the others work.
        named: a part of the names of the threads that are refused.

    Yields:
        The names of those that were refused.
    """
    refused: list[str] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if named in thread.name and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with patch.object(threading.Thread, "start", refuse):
        yield refused
