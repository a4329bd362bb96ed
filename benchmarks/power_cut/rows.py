"""The rows of the table: which products, in which modes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.power_cut.peers import (
    DiskcacheDeque,
    Litequeue,
    Lmdb,
    PersistQueueFiles,
    PersistQueueSqlite,
    PlainFile,
    Queuelib,
    Redis,
    Spillable,
    Sqlite,
    Store,
)

__all__ = ["ROWS", "Row", "missing"]


@dataclass(frozen=True)
class Row:
    """A product in one mode.

    Args:
        name: what ``--only`` and the worker call it.
        product: what the table calls it.
        mode: which mode this is.
        store: the adapter.
        options: what its constructor gets for this mode.
        package: the package that it needs.
        pause_seconds: how long the writer rests after each transaction, where a product syncs by the clock.
    """

    name: str
    product: str
    mode: str
    store: Callable[..., Store]
    options: Mapping[str, Any] = field(default_factory=dict)
    package: str = ""
    pause_seconds: float = 0.0

    def open(self, disk: Path, memory: Path) -> Store:
        """Make or open the queue, in a directory on the disk; the other one is in memory."""
        return self.store(disk, memory, **self.options)


def _spillable(name: str, mode: str, **options: Any) -> Row:
    return Row(f"spillable_stream-{name}", "spillable_stream", mode, Spillable, options)


def _sqlite(name: str, mode: str, **pragmas: str) -> Row:
    return Row(f"sqlite-{name}", "SQLite", mode, Sqlite, pragmas)


def _lmdb(name: str, mode: str, **options: Any) -> Row:
    return Row(f"lmdb-{name}", "LMDB", mode, Lmdb, options, "lmdb")


def _redis(name: str, mode: str, arguments: str = "", pause_seconds: float = 0.0) -> Row:
    return Row(f"redis-{name}", "Redis", mode, Redis, {"arguments": arguments}, "redis", pause_seconds)


def _persist_queue(name: str, mode: str, store: Callable[..., Store], **options: Any) -> Row:
    return Row(f"persist-queue-{name}", "persist-queue", mode, store, options, "persistqueue")


def _diskcache(name: str, mode: str, **settings: Any) -> Row:
    return Row(f"diskcache-{name}", "diskcache `Deque`", mode, DiskcacheDeque, settings, "diskcache")


def _litequeue(name: str, mode: str, **options: Any) -> Row:
    return Row(f"litequeue-{name}", "litequeue", mode, Litequeue, options, "litequeue")


def _queuelib(name: str, mode: str, kind: str) -> Row:
    return Row(f"queuelib-{name}", "queuelib", mode, Queuelib, {"kind": kind}, "queuelib")


def _file(name: str, mode: str, synced: bool) -> Row:
    return Row(f"file-{name}", "a plain file", mode, PlainFile, {"synced": synced})


_WAL = {"journal_mode": "WAL"}
ROWS = (
    _spillable("disk", "default, and safest: on disk"),
    _spillable(
        "memory",
        "`memory_capacity=10_000`, another promise: outlives processes, not the host, and names what is lost",
        memory_capacity=10_000,
    ),
    _sqlite("default", "default: rollback journal, `synchronous=FULL`"),
    _sqlite("extra", "safest: `synchronous=EXTRA`", synchronous="EXTRA"),
    _sqlite("wal-normal", "common: `journal_mode=WAL`, `synchronous=NORMAL`", **_WAL, synchronous="NORMAL"),
    _sqlite("wal-full", "as safe: `journal_mode=WAL`, `synchronous=FULL`", **_WAL, synchronous="FULL"),
    _lmdb("default", "default, and safest: `sync=True`, `metasync=True`"),
    _lmdb("writemap", "`writemap=True`", writemap=True),
    _lmdb("no-metasync", "`metasync=False`", metasync=False),
    _lmdb("no-sync", "`sync=False`", sync=False),
    _redis("default", "default: snapshots, the first after a minute at the earliest"),
    _redis("everysec", "`appendonly yes` with its default, `appendfsync everysec`", "--appendonly yes", 0.05),
    _redis("always", "safest: `appendonly yes`, `appendfsync always`", "--appendonly yes --appendfsync always"),
    _persist_queue("default", "default: `Queue`, in files", PersistQueueFiles),
    _persist_queue("autosave", "`Queue(autosave=True)`", PersistQueueFiles, autosave=True),
    _persist_queue("sqlite", "safest: `SQLiteQueue`: WAL, `synchronous=FULL`", PersistQueueSqlite, kind="SQLiteQueue"),
    _persist_queue("ack", "as safe: `SQLiteAckQueue`", PersistQueueSqlite, kind="SQLiteAckQueue"),
    _diskcache("default", "default: WAL, `sqlite_synchronous=1` (NORMAL)"),
    _diskcache("full", "`sqlite_synchronous=2` (FULL); values of 32 KiB or more are files", sqlite_synchronous=2),
    _diskcache(
        "full-inline",
        "safest: the same, and `disk_min_file_size` above any value",
        sqlite_synchronous=2,
        disk_min_file_size=1 << 30,
    ),
    _litequeue("default", "default: WAL, `synchronous=NORMAL`; no option for it"),
    _litequeue("full", "safest: `PRAGMA synchronous=FULL` on its connection, from outside", synchronous="FULL"),
    _queuelib("default", "default: `FifoDiskQueue`; no option to sync, and a clean close is needed", "FifoDiskQueue"),
    _queuelib("sqlite", "safest: `FifoSQLiteQueue`: SQLite's default", "FifoSQLiteQueue"),
    _file("unsynced", "`write` alone: what is lost if nobody syncs", synced=False),
    _file("synced", "`write` and `fdatasync`: what the file system keeps", synced=True),
)


def missing(rows: Sequence[Row]) -> str:
    """Return what these rows need that is not installed, in one sentence; nothing if all is there."""
    packages = sorted({row.package for row in rows if row.package and not find_spec(row.package)})
    if packages:
        return f"{', '.join(packages)} missing: pip install -r requirements-bench.txt"
    if any(row.package == "redis" for row in rows) and not shutil.which("redis-server"):
        return "redis-server is missing: apt-get install redis-server"
    return ""
