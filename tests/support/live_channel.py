"""A channel under load: threads put numbered events and take them, and a ledger knows what every ID holds."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from spillable_stream import Channel, Event


class Load:
    """Threads that put and take until the block ends; what fails is raised there.

    Attributes:
        ledger: the bodies that were put, by write-order ID.
    """

    def __init__(self, channel: Channel, groups: tuple[str, ...], size_bytes: int) -> None:
        self.ledger: dict[int, bytes] = {}
        self._channel = channel
        self._size_bytes = size_bytes
        self._ended = threading.Event()
        self._failures: list[BaseException] = []
        targets = [self._put, self._put, *(self._take(group) for group in groups)]
        self._threads = [threading.Thread(target=self._guarded, args=(t,)) for t in targets]

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as e:
            self._failures.append(e)

    def _put(self) -> None:
        rng = random.Random(threading.get_ident())
        while not self._ended.is_set():
            bodies = [
                b"%d " % rng.getrandbits(64) * rng.randint(1, self._size_bytes) for _ in range(rng.randint(1, 20))
            ]
            with self._channel.put_transaction() as tx:
                tx.put_many(map(Event, bodies))
            self.ledger |= dict(zip(range(tx.committed.first_id, tx.committed.last_id + 1), bodies, strict=True))
            time.sleep(0.001)

    def _take(self, group: str) -> object:
        def take() -> None:
            while not self._ended.is_set():
                with self._channel.take_transaction(group) as tx:
                    tx.take_many(50, 0.01)

        return take

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]


@contextmanager
def under_load(channel: Channel, *groups: str, size_bytes: int = 100) -> Iterator[Load]:
    """Put and take in threads while the block runs."""
    load = Load(channel, groups, size_bytes)
    load.start()
    try:
        yield load
    finally:
        load.end()
