"""Databases in the process, used as a queue: SQLite, LMDB and RocksDB."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.store import Store

__all__ = ["Lmdb", "Rocksdict", "Sqlite"]

_LMDB_BYTES = 64 << 20


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

        self._environment = lmdb.open(str(directory / "environment"), **{"map_size": _LMDB_BYTES, **options})

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
            # The last key stays, so that the next one continues counting.
            while more and len(found) < count and tx.stat()["entries"] > 1:
                found.append(bytes(cursor.value()))
                more = cursor.delete()
        return found

    def read(self) -> Iterator[bytes]:
        """Look at everything."""
        with self._environment.begin() as tx:
            for _, body in tx.cursor():
                yield bytes(body)


class Rocksdict(Store):
    """Keys that count up in RocksDB, through rocksdict."""

    def __init__(self, directory: Path, _: Path, sync: bool = False) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self._db: Any = rocksdict.Rdict(str(directory / "db"), options)
        self._how = rocksdict.WriteOptions()
        self._how.sync = sync
        self._new_batch: Callable[[], Any] = lambda: rocksdict.WriteBatch(raw_mode=True)
        self._first, self._next = 1, self._last() + 1

    def _last(self) -> int:
        keys = self._db.keys(backwards=True)
        return next((int.from_bytes(key, "big") for key in keys), 0)

    def put(self, bodies: list[bytes]) -> int:
        """Write one batch."""
        batch = self._new_batch()
        for body in bodies:
            batch.put(self._next.to_bytes(8, "big"), body)
            self._next += 1
        self._db.write(batch, self._how)
        return 0

    def take(self, count: int) -> list[bytes]:
        """Read from where the last take ended, so that no deleted key is in the way, and delete with one batch."""
        found: list[bytes] = []
        batch = self._new_batch()
        for key, body in self._db.items(from_key=self._first.to_bytes(8, "big")):
            if len(found) == count:
                break
            found.append(body)
            batch.delete(key)
            self._first = int.from_bytes(key, "big") + 1
        if found:
            self._db.write(batch, self._how)
        return found

    def read(self) -> Iterator[bytes]:
        """Look at everything."""
        yield from self._db.values()

    def close(self) -> None:
        """Close the database."""
        self._db.close()
