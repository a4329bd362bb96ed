"""The products, each behind the same few calls; `rows` has their modes."""

from __future__ import annotations

import os
import socket
import sqlite3
import struct
import subprocess
import time
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "DiskcacheDeque",
    "Litequeue",
    "Lmdb",
    "PersistQueueFiles",
    "PersistQueueSqlite",
    "PlainFile",
    "Queuelib",
    "Redis",
    "Spillable",
    "Sqlite",
    "Store",
]

_PATIENCE_SECONDS = 10.0
_ATTEMPTS = 3


class Store(ABC):
    """A product's queue. It is made anew, or opened, by its constructor."""

    @abstractmethod
    def put(self, bodies: list[bytes]) -> int:
        """Return once the product says that the bodies are stored: the first one's ID, or 0."""

    @abstractmethod
    def take(self, count: int) -> list[bytes]:
        """Return the oldest bodies, up to so many, once the product says that they are taken."""

    @abstractmethod
    def read(self) -> Iterator[bytes]:
        """Yield all that is there, the oldest first; it may be taken by that."""

    def reported(self) -> Sequence[tuple[int, int]]:
        """Return the IDs that the product itself names as lost, as ranges of first and last."""
        return ()

    def close(self) -> None:  # noqa: B027 -- most have nothing that outlives the process
        """End what the process would leave behind."""


class Spillable(Store):
    """This project's channel.

    The file system is smaller than what the channel wants to be free, 500 MB, so that this is switched off.
    """

    def __init__(self, directory: Path, memory: Path, **options: Any) -> None:
        import spillable_stream as ss
        import spillable_stream.log.head as head

        boot = os.urandom(16)
        head.boot_id = lambda: boot  # type: ignore[assignment]  # every process is another boot: the writer, the reader
        if options.get("memory_capacity"):
            options["memory_dir"] = memory
        warnings.simplefilter("ignore", ss.MemoryLossWarning)  # `reported` has it too
        self._event = ss.Event
        self._channel = ss.Channel(directory / "channel", minimum_required_space=0, **options)

    def put(self, bodies: list[bytes]) -> int:
        """Commit one transaction."""
        with self._channel.put_transaction() as tx:
            tx.put_many(self._event(body) for body in bodies)
        return tx.committed.first_id

    def take(self, count: int) -> list[bytes]:
        """Commit one transaction."""
        with self._channel.take_transaction() as tx:
            return [event.body for event in tx.take_many(count)]

    def read(self) -> Iterator[bytes]:
        """Take everything."""
        while found := self.take(1_000):
            yield from found

    def reported(self) -> Sequence[tuple[int, int]]:
        """Return the IDs that are lost and those of which nobody can tell."""
        stats = self._channel.stats()
        return (*stats.lost, *stats.doubtful)


class Sqlite(Store):
    """A table in SQLite, through Python's own module."""

    def __init__(self, directory: Path, _: Path, **pragmas: str) -> None:
        self._connection = sqlite3.connect(directory / "queue.db", isolation_level=None)
        for name, value in pragmas.items():
            self._connection.execute(f"PRAGMA {name} = {value}")
        self._connection.execute("CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB)")

    def put(self, bodies: list[bytes]) -> int:
        """Commit one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO queue (body) VALUES (?)", [(body,) for body in bodies])
        self._connection.execute("COMMIT")
        return 0

    def take(self, count: int) -> list[bytes]:
        """Commit one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        rows = self._connection.execute("SELECT id, body FROM queue ORDER BY id LIMIT ?", (count,)).fetchall()
        self._connection.executemany("DELETE FROM queue WHERE id = ?", [(row[0],) for row in rows])
        self._connection.execute("COMMIT")
        return [row[1] for row in rows]

    def read(self) -> Iterator[bytes]:
        """Look at everything."""
        for row in self._connection.execute("SELECT body FROM queue ORDER BY id"):
            yield row[0]


class Lmdb(Store):
    """Keys that count up in LMDB."""

    def __init__(self, directory: Path, _: Path, **options: Any) -> None:
        import lmdb

        self._environment = lmdb.open(str(directory / "environment"), map_size=64 << 20, **options)

    def put(self, bodies: list[bytes]) -> int:
        """Commit one transaction."""
        with self._environment.begin(write=True) as tx:
            cursor = tx.cursor()
            last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
            for i, body in enumerate(bodies, last + 1):
                tx.put(i.to_bytes(8, "big"), body)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Commit one transaction."""
        found: list[bytes] = []
        with self._environment.begin(write=True) as tx:
            cursor = tx.cursor()
            more = cursor.first()
            # The last key stays, so that the next one goes on counting.
            while more and len(found) < count and tx.stat()["entries"] > 1:
                found.append(bytes(cursor.value()))
                more = cursor.delete()
        return found

    def read(self) -> Iterator[bytes]:
        """Look at everything."""
        with self._environment.begin() as tx:
            for _, body in tx.cursor():
                yield bytes(body)


class Redis(Store):
    """A list in a Redis server of our own, which listens on the loopback interface only."""

    def __init__(self, directory: Path, memory: Path, arguments: str) -> None:
        self._log = memory / "redis.log"
        for _ in range(_ATTEMPTS):
            if self._start(["--dir", str(directory), *arguments.split()]):
                return
            self.close()
            said = self._log.read_text(errors="replace").splitlines()
            if not any("listening" in line for line in said):  # else somebody was given the same port
                break
        raise RuntimeError(f"redis-server: {said[-1] if said else 'no word of why'}")

    def _start(self, arguments: list[str]) -> bool:
        """Start the server and tell whether it serves."""
        import redis

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with self._log.open("wb") as log:
            command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), *arguments]
            self._server = subprocess.Popen(command, stdout=log, stderr=log)
        self._client = redis.Redis(port=port)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._server.poll() is None and time.monotonic() < deadline:
            try:
                return bool(self._client.ping())
            except redis.RedisError:  # not there yet, or loading
                time.sleep(0.01)
        return False

    def put(self, bodies: list[bytes]) -> int:
        """Push them with one command."""
        self._client.rpush("queue", *bodies)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Pop them with one command."""
        found: Any = self._client.lpop("queue", count)
        return found or []

    def read(self) -> Iterator[bytes]:
        """Look at everything."""
        found: Any = self._client.lrange("queue", 0, -1)
        yield from found

    def close(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.wait()


class PersistQueueFiles(Store):
    """persist-queue's `Queue`."""

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
        """Get them one by one, and acknowledge them where that is to be done."""
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


class PlainFile(Store):
    """Records that are appended to a file: what is to be lost if nobody syncs, and nothing if somebody does."""

    _RECORD = struct.Struct("<cII")

    def __init__(self, directory: Path, _: Path, synced: bool) -> None:
        path = directory / "file"
        self._fd, self._synced = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), synced
        self._read_to, self._taken = 0, 0
        if synced:
            os.fsync(self._fd)
            parent = os.open(directory, os.O_RDONLY)
            os.fsync(parent)
            os.close(parent)

    def _append(self, kind: bytes, payloads: list[bytes]) -> None:
        os.write(self._fd, b"".join(self._RECORD.pack(kind, len(p), zlib.crc32(p)) + p for p in payloads))
        if self._synced:
            os.fdatasync(self._fd)

    def put(self, bodies: list[bytes]) -> int:
        """Append them with one write."""
        self._append(b"+", bodies)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Append how many have been taken so far."""
        found = list(self.read())[:count]
        self._taken += len(found)
        self._append(b"-", [str(self._taken).encode()])
        return found

    def read(self) -> Iterator[bytes]:
        """Look at everything up to the first record that is not whole."""
        data = memoryview(os.pread(self._fd, os.fstat(self._fd).st_size, 0))
        bodies, taken, offset = [], 0, 0
        while len(data) - offset >= self._RECORD.size:
            kind, size, crc = self._RECORD.unpack_from(data, offset)
            offset += self._RECORD.size
            payload = bytes(data[offset : offset + size])
            if kind not in (b"+", b"-") or len(payload) < size or zlib.crc32(payload) != crc:
                break
            offset += size
            if kind == b"+":
                bodies.append(payload)
            else:
                taken = int(payload)
        yield from bodies[taken:]
