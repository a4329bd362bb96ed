"""Queues in the process: persist-queue, diskcache, litequeue and queuelib."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.store import Store

__all__ = ["DiskcacheDeque", "Litequeue", "PersistQueueFiles", "PersistQueueSqlite", "Queuelib"]


class PersistQueueFiles(Store):
    """persist-queue's `Queue`."""

    puts_singly = takes_singly = True

    def __init__(self, directory: Path, _: Path, **options: Any) -> None:
        from persistqueue import Queue

        self._queue = Queue(str(directory / "queue"), **options)

    def put(self, bodies: list[bytes]) -> int:
        """Put them one by one."""
        for body in bodies:
            self._queue.put(body)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Get them one by one, and say that they are done."""
        found = []
        for _ in range(min(count, self._queue.qsize())):
            found.append(self._queue.get(block=False))
            self._queue.task_done()
        return found

    def read(self) -> Iterator[bytes]:
        """Get everything."""
        while self._queue.qsize():
            yield self._queue.get(block=False)


class PersistQueueSqlite(Store):
    """persist-queue's `SQLiteQueue` or `SQLiteAckQueue`."""

    puts_singly = takes_singly = True

    def __init__(self, directory: Path, _: Path, kind: str) -> None:
        import persistqueue

        self._queue = getattr(persistqueue, kind)(str(directory / "queue"))
        self._ack: Callable[[bytes], object] = getattr(self._queue, "ack", lambda body: None)

    def put(self, bodies: list[bytes]) -> int:
        """Put them one by one."""
        for body in bodies:
            self._queue.put(body)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Get them one by one, and acknowledge them where the queue needs it."""
        found = []
        for _ in range(min(count, self._queue.size)):
            found.append(body := self._queue.get(block=False))
            self._ack(body)
        return found

    def read(self) -> Iterator[bytes]:
        """Get everything."""
        while self._queue.size:
            yield self._queue.get(block=False)


class DiskcacheDeque(Store):
    """diskcache's `Deque`."""

    puts_singly = takes_singly = True

    def __init__(self, directory: Path, _: Path, **settings: Any) -> None:
        import diskcache

        path = str(directory / "deque")
        self._deque = (
            diskcache.Deque.fromcache(diskcache.Cache(path, eviction_policy="none", **settings))
            if settings
            else diskcache.Deque(directory=path)
        )

    def put(self, bodies: list[bytes]) -> int:
        """Append them one by one."""
        self._deque.extend(bodies)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Pop them one by one."""
        return [self._deque.popleft() for _ in range(min(count, len(self._deque)))]

    def read(self) -> Iterator[bytes]:
        """Look at everything."""
        yield from self._deque


class Litequeue(Store):
    """litequeue's `LiteQueue`."""

    takes_singly = True

    def __init__(self, directory: Path, _: Path, synchronous: str = "") -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(directory / "queue.db")
        if synchronous:  # its constructor sets NORMAL, whatever a connection that it is given has
            self._queue.conn.execute(f"PRAGMA synchronous = {synchronous}")

    def put(self, bodies: list[bytes]) -> int:
        """Put them in one transaction."""
        with self._queue.transaction():
            for body in bodies:
                self._queue.put(body.decode())
        return 0

    def take(self, count: int) -> list[bytes]:
        """Pop them one by one, and say that they are done."""
        found: list[bytes] = []
        while len(found) < count and (message := self._queue.pop()) is not None:
            self._queue.done(message.message_id)
            found.append(message.data.encode())
        return found

    def read(self) -> Iterator[bytes]:
        """Pop everything."""
        while (message := self._queue.pop()) is not None:
            yield message.data.encode()


class Queuelib(Store):
    """One of queuelib's queues."""

    puts_singly = takes_singly = True

    def __init__(self, directory: Path, _: Path, kind: str) -> None:
        import queuelib.queue

        self._queue = getattr(queuelib.queue, kind)(directory / "queue")

    def put(self, bodies: list[bytes]) -> int:
        """Push them one by one."""
        for body in bodies:
            self._queue.push(body)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Pop them one by one."""
        return [self._queue.pop() for _ in range(min(count, len(self._queue)))]

    def read(self) -> Iterator[bytes]:
        """Pop everything."""
        while (body := self._queue.pop()) is not None:
            yield body
