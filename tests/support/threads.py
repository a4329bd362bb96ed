"""Runs something in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_threads(count: int, work: Callable[[int], Any]) -> list[BaseException | None]:
    """Run ``work`` in threads at once and return what each raised."""
    raised: list[BaseException | None] = [None] * count

    def run(i: int) -> None:
        try:
            work(i)
        except BaseException as e:
            raised[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised
