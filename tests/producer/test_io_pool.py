"""Threads that serve what is put, in order, and end when that is done."""

from __future__ import annotations

import threading
from typing import Any

from spillable_stream.producer.io_pool import IoPool
from spillable_stream.producer.threads import Threads
from tests.support.fake_targets import PATIENCE_SECONDS


def test_what_is_put_is_served_in_order_and_the_threads_end_after_it() -> None:
    served: list[Any] = []
    pool = IoPool(served.append, 1, Threads(lambda error: None), "io")
    lanes: list[Any] = list(range(50))
    for lane in lanes:
        pool.put(lane)
    pool.close()
    end(pool)
    assert served == lanes


def test_lanes_are_served_at_once_by_as_many_threads_as_there_are() -> None:
    together = threading.Barrier(3)
    pool = IoPool(lambda lane: together.wait(PATIENCE_SECONDS) and None, 3, Threads(lambda error: None), "io")
    lanes: list[Any] = [1, 2, 3]
    for lane in lanes:
        pool.put(lane)
    pool.close()
    end(pool)
    assert not together.broken


def end(pool: IoPool) -> None:
    for thread in pool.threads:
        thread.start()
    for thread in pool.threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
