"""Making a channel: its directories, its first data file, and last of all its identity."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from spillable_stream.channel.state import ChannelState
from spillable_stream.errors import ChannelBusyError, NotAChannelError
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.layout import Layout, Tier
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.options import CREATION, defaults
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["create_channel"]

_OWN_NAMES = {"lock", "open.lock", "checkpoint.lock", "head", "data", "groups", "checkpoint", "memory", "quarantine"}
_LOCK_SECONDS = 30.0
_POLL_SECONDS = 0.05


def create_channel(fs: FileSystem, path: Path, options: dict[str, Any], schemas: list[bytes]) -> None:
    """Make a channel at ``path`` unless there is one; several processes may try at once.

    A creation that was cut short anywhere is done again from its beginning.

    Args:
        fs: the file system.
        path: its directory, which must be missing or empty.
        options: values of every channel option, and of the directories.
        schemas: the schema of its events, as an Arrow IPC message.

    Raises:
        NotAChannelError: the directory holds other things.
        LockUnsupportedError: the file system has no working locks.
        ChannelBusyError: another process is at it for too long.
        StorageError: the file system refused.
    """
    foreign = [n for n in fs.list(path) if n not in _OWN_NAMES and not n.endswith(".tmp")]
    if foreign and not Layout.exists(fs, path):
        raise NotAChannelError(
            f"{path} is not a channel and not empty (it holds {foreign[0]!r}); use another directory"
        )
    layout = Layout.plan(path, options)
    layout.make_directories(fs)
    creating = FileLock.open(fs, layout.open_lock)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not creating.acquire(_POLL_SECONDS):
            if Layout.exists(fs, path):
                return
            if time.monotonic() > deadline:
                raise ChannelBusyError(f"another process creates {path} for more than {_LOCK_SECONDS:g} s; see why")
        creating.check_exclusive(fs)
        if not Layout.exists(fs, path):
            _create_files(fs, layout, options, schemas)
    finally:
        creating.close()


def _create_files(fs: FileSystem, layout: Layout, options: dict[str, Any], schemas: list[bytes]) -> None:
    for file_id in layout.log_files(fs):  # left by a creation that was cut short
        if layout.data_dirs != (layout.path / "data",):
            raise NotAChannelError(f"{layout.log_file(file_id)} belongs to another channel; use other dataDirs")
        fs.remove(layout.log_file(file_id))
    fs.remove(layout.head)
    lock = CommitLock(fs, layout)
    wal = WriteAheadLog(lock, Tier.DISK, max_file_size_bytes=1 << 62)
    try:
        stored = {k: v for k, v in options.items() if k not in defaults(CREATION)}
        # Whoever is killed between the identity's rename and its sync leaves a channel that a power cut can take
        # away. With a head of no boot the first to open it recovers, which syncs what leads to it.
        lock.head.boot = bytes(16)
        wal.create_first_file(ChannelState(stored, schemas).small)
    finally:
        wal.close()
        lock.close()
    layout.write(fs)
