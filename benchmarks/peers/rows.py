"""The products' modes: `POWER_CUT` and `SPEED` say which of them are compared in what."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.peers.databases import Lmdb, Rocksdict, Sqlite
from benchmarks.peers.queues import DiskcacheDeque, Litequeue, PersistQueueFiles, PersistQueueSqlite, Queuelib
from benchmarks.peers.servers import Nats, Redis, RedisStream, server_path
from benchmarks.peers.store import Store

__all__ = ["POWER_CUT", "SPEED", "Row", "lacks", "missing", "versions"]

_NATS_SYNC_VERSION = (2, 10)
_PACKAGES = ("persist-queue", "diskcache", "litequeue", "queuelib", "lmdb", "rocksdict", "redis", "nats-py")


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
        server: the server that it needs.
        pause_seconds: how long the writer rests after each transaction, where a product syncs by the clock.
    """

    name: str
    product: str
    mode: str
    store: Callable[..., Store]
    options: Mapping[str, Any] = field(default_factory=dict)
    package: str = ""
    server: str = ""
    pause_seconds: float = 0.0

    def open(self, disk: Path, memory: Path) -> Store:
        """Make or open the queue, in a directory on the disk; the other one is in memory."""
        return self.store(disk, memory, **self.options)

    @property
    def safest(self) -> bool:
        """Whether the product has no safer mode, as its mode says."""
        return "safest" in self.mode


def _sqlite(name: str, mode: str, **pragmas: str) -> Row:
    return Row(f"sqlite-{name}", "SQLite", mode, Sqlite, pragmas)


def _lmdb(name: str, mode: str, **options: Any) -> Row:
    return Row(f"lmdb-{name}", "LMDB", mode, Lmdb, options, "lmdb")


def _rocksdict(name: str, mode: str, sync: bool) -> Row:
    return Row(f"rocksdict-{name}", "rocksdict", mode, Rocksdict, {"sync": sync}, "rocksdict")


def _redis(name: str, mode: str, arguments: str = "", pause_seconds: float = 0.0) -> Row:
    options = {"arguments": arguments}
    return Row(f"redis-{name}", "Redis", mode, Redis, options, "redis", "redis-server", pause_seconds)


def _redis_stream(name: str, mode: str, arguments: str = "") -> Row:
    options = {"arguments": arguments}
    return Row(f"redis-stream-{name}", "Redis Streams", mode, RedisStream, options, "redis", "redis-server")


def _nats(name: str, mode: str, sync_always: bool) -> Row:
    return Row(f"nats-{name}", "NATS JetStream", mode, Nats, {"sync_always": sync_always}, "nats", "nats-server")


def _persist_queue(name: str, mode: str, store: Callable[..., Store], **options: Any) -> Row:
    return Row(f"persist-queue-{name}", "persist-queue", mode, store, options, "persistqueue")


def _diskcache(name: str, mode: str, **settings: Any) -> Row:
    return Row(f"diskcache-{name}", "diskcache `Deque`", mode, DiskcacheDeque, settings, "diskcache")


def _litequeue(name: str, mode: str, **options: Any) -> Row:
    return Row(f"litequeue-{name}", "litequeue", mode, Litequeue, options, "litequeue")


def _queuelib(name: str, mode: str, kind: str) -> Row:
    return Row(f"queuelib-{name}", "queuelib", mode, Queuelib, {"kind": kind}, "queuelib")


_WAL = {"journal_mode": "WAL"}
_APPEND_ALWAYS = "--appendonly yes --appendfsync always"
POWER_CUT = (
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
    _redis("always", "safest: `appendonly yes`, `appendfsync always`", _APPEND_ALWAYS),
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
)
SPEED = (
    _persist_queue("default", "default: `Queue`, in files", PersistQueueFiles),
    _persist_queue("sqlite", "safest: `SQLiteQueue`: WAL, `synchronous=FULL`", PersistQueueSqlite, kind="SQLiteQueue"),
    _diskcache("default", "default: WAL, `synchronous=NORMAL`"),
    _diskcache("full", "safest: WAL, `synchronous=FULL`", sqlite_synchronous=2, disk_min_file_size=1 << 30),
    _litequeue("default", "default: WAL, `synchronous=NORMAL`"),
    _litequeue("full", "safest: WAL, `synchronous=FULL`", synchronous="FULL"),
    _queuelib("default", "default: `FifoDiskQueue`, never syncs", "FifoDiskQueue"),
    _queuelib("sqlite", "safest: `FifoSQLiteQueue`", "FifoSQLiteQueue"),
    _sqlite("default", "default: rollback journal, `synchronous=FULL`"),
    _sqlite("extra", "safest: rollback journal, `synchronous=EXTRA`", synchronous="EXTRA"),
    _sqlite("wal-full", "WAL, `synchronous=FULL`", **_WAL, synchronous="FULL"),
    _lmdb("default", "default, and safest: `sync`, `metasync`", map_size=4 << 30),
    _rocksdict("default", "default: a log that is not synced", sync=False),
    _rocksdict("sync", "safest: `sync=True`", sync=True),
    _redis_stream("default", "default: snapshots only"),
    _redis_stream("always", "safest: `appendonly yes`, `appendfsync always`", _APPEND_ALWAYS),
    _nats("default", "default: files, synced every 2 minutes", sync_always=False),
    _nats("always", "safest: `sync_interval: always`, NATS 2.10 or later", sync_always=True),
)


def lacks(row: Row) -> str:
    """Return what a row needs that is not installed, and how to get it; nothing if all is there."""
    if row.package and not find_spec(row.package):
        return f"the package {row.package} is missing: pip install -r requirements-bench.txt"
    if row.server and not server_path(row.server):
        return f"{row.server} is missing: apt-get install {row.server}"
    if row.options.get("sync_always"):
        found = _server_version("nats-server")
        if tuple(map(int, found.split("."))) < _NATS_SYNC_VERSION:
            return f"nats-server is {found}, which has no option to sync before it answers"
    return ""


def missing(rows: Sequence[Row]) -> str:
    """Return what these rows need that is not installed, in one sentence; nothing if all is there."""
    return "; ".join(sorted({why for row in rows if (why := lacks(row))}))


def versions() -> str:
    """Return the versions of what is compared and is installed, in one sentence."""
    found = [f"SQLite {sqlite3.sqlite_version}"]
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    found += [f"{name} {_server_version(name)}" for name in ("redis-server", "nats-server") if server_path(name)]
    return f"Compared with {', '.join(found)}."


@cache
def _server_version(name: str) -> str:
    """Return a server's version, such as 2.10.1."""
    command = [server_path(name) or name, "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return next(iter(re.findall(r"\d+\.\d+\.\d+", said)), "0.0.0")
