from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

from spillable_stream import Channel
from spillable_stream.channel.known_workers import KnownWorkers
from spillable_stream.workers.config import WorkerConfig
from spillable_stream.workers.making import make_worker
from spillable_stream.workers.worker import Worker


def worker_of(channel: Channel, group: str) -> Worker:
    return make_worker(channel, group, print, WorkerConfig(None, 5, 1.0, 1, None), None)


def test_workers_are_known_in_their_order_as_long_as_somebody_has_them(open_channel: Callable[..., Channel]) -> None:
    channel, known = open_channel(), KnownWorkers()
    first, second = known.add(worker_of(channel, "b")), known.add(worker_of(channel, "a"))
    assert known.stats() == (first.stats(), second.stats())
    assert [worker.group for worker in known.stats()] == ["b", "a"]
    del first
    gc.collect()
    assert [worker.group for worker in known.stats()] == ["a"]


def test_a_forked_child_knows_none(open_channel: Callable[..., Channel]) -> None:
    channel, known = open_channel(), KnownWorkers()
    worker = known.add(worker_of(channel, "a"))
    known.leave()
    assert known.stats() == ()
    assert worker.stats().group == "a"


def test_workers_may_come_while_the_others_are_counted() -> None:
    class Known:
        def stats(self) -> Any:
            return None

        def leave(self) -> None: ...

    workers, more = KnownWorkers(), list[Known]()
    kept = [workers.add(Known()) for _ in range(1000)]
    ended = threading.Event()

    def add() -> None:
        while not ended.is_set():
            more.append(workers.add(Known()))
            if len(more) > 1000:
                more.clear()

    thread, interval = threading.Thread(target=add), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(200):
            assert len(workers.stats()) >= len(kept)
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        thread.join()
