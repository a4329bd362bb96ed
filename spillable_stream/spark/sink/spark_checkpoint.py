"""Syncs what Spark wrote of a micro-batch before the sink has the batch: Spark syncs nothing of its checkpoint.

A power cut could take the offsets of a batch from Spark that a sink has. Spark plans the batch anew then: what has come
to a source in the meantime may be in it, and the sink takes it for the batch that it has, and skips these rows. Without
the query's ID, Spark refuses the checkpoint, or makes another ID, for which a sink stores the batch again.

::

    offsets/N, offsets/    which events the batch N has, of every source
    metadata               the query's ID, by which a sink knows the batch
    the directory itself, and those above it

Each file is written again before its sync: one that failed before, for a driver that is gone by now, has left the bytes
clean in memory, where Spark reads them, and a second sync would say that they are on the medium.

Spark names a sink the checkpoint's place where the query's option says it. Where the session's configuration does, a
query that can be started again has a name, and its checkpoint is under that; tasks are told the configuration, and tell
the commit. One that is not on a file system of the driver's host is left to the store that it is in; so are offsets
that Spark writes late (``asyncProgressTrackingEnabled``).

It also shows that a driver hung while another one took its place: the batch is in ``commits``, or a later one, since
Spark keeps the last hundred only; or the query's ID is another one. Spark would fail that driver right after its
commit. A sink that has the batch would skip it, too; but by then the query may write to another sink, or be another
query.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from spillable_stream import durable_names
from spillable_stream.durable_names import is_not_ours
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.spark.local_path import local_path
from spillable_stream.system_errors import storage_error

__all__ = ["NOWHERE", "SparkCheckpoint", "is_there", "sync_path"]


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """The checkpoint of a query, as far as the driver's host has it.

    Args:
        location: where it is, if the query's option says it; else "".
        query: the query's name; "" without one.
    """

    location: str = ""
    query: str = ""

    def directory(self, checkpoints: str) -> Path | None:
        """Return the checkpoint's directory on this host; None if there is none, or nothing says it.

        Args:
            checkpoints: where the session keeps checkpoints; "" if it does not say it.
        """
        of_session = f"{checkpoints}/{self.query}" if checkpoints and self.query else ""
        path = local_path(self.location or of_session, is_encoded=False)  # as Hadoop takes it
        return Path(path) if path else None

    def sync_batch(self, batch_id: int, checkpoints: str) -> None:
        """Return once the offsets of a batch, and the query's ID, are on the medium; at once where they are not here.

        Args:
            batch_id: the number of the batch.
            checkpoints: where the session keeps checkpoints, as a task was told; "" if none knows.

        Raises:
            StorageError: the disk failed.
        """
        directory = self.directory(checkpoints)
        if directory is None or not is_there(directory / "offsets" / str(batch_id)):
            return
        offsets, metadata = directory / "offsets", directory / "metadata"
        _sync(offsets / str(batch_id))
        _sync(offsets)
        if is_there(metadata):
            _sync_query(metadata, metadata.read_bytes())

    def require_under_way(self, query: str, batch_id: int, checkpoints: str) -> None:
        """Refuse a batch that another driver of the query has finished, or of a query whose checkpoint is another's.

        Args:
            query: the query's ID.
            batch_id: the number of the batch.
            checkpoints: where the session keeps checkpoints, as a task was told; "" if none knows.

        Raises:
            CheckpointMismatchError: it is finished, or the checkpoint is of another query by now.
        """
        directory = self.directory(checkpoints)
        if directory is None:
            return
        if (finished := _last_finished(directory)) >= batch_id:
            what = f"another driver of the query {query} has finished its batch {finished}"
        elif (there := _query_in(directory)) not in ("", query):
            what = f"it is the checkpoint of the query {there} by now, and no longer that of {query}"
        else:
            return
        raise CheckpointMismatchError(
            f"{directory} says that {what}: this driver was replaced while it hung. Of its batch {batch_id} it has "
            "stored nothing now: let it end"
        )


NOWHERE = SparkCheckpoint()
"""The checkpoint of a query whose place nothing says."""


def _last_finished(directory: Path) -> int:
    """Return the last batch that Spark has noted as done; -1 where there is none, or nothing says it."""
    with contextlib.suppress(OSError):
        return max((int(name) for name in os.listdir(directory / "commits") if name.isdecimal()), default=-1)
    return -1


def _query_in(directory: Path) -> str:
    """Return the ID of the query whose checkpoint it is; "" where nothing says it."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        return str(json.loads((directory / "metadata").read_text(encoding="utf-8"))["id"])
    return ""


@lru_cache(maxsize=1000)
def _sync_query(metadata: Path, content: bytes) -> None:
    """Sync what stays the same in each batch: once for each query, whose ID is in the content.

    The walk upwards ends at a mount point, or at a directory that this process may not or can't sync.
    """
    _sync(metadata)
    for directory in Path(os.path.realpath(metadata)).parents:
        if not _sync(directory) or os.path.ismount(directory):
            return


def is_there(path: Path) -> bool:
    """Tell whether a file or directory of a checkpoint is there; False where this process may not look.

    Raises:
        StorageError: the disk failed.
    """
    try:
        return durable_names.is_there(path)
    except OSError as e:
        if is_not_ours(e):
            return False
        raise storage_error(f"the batch is not stored: can't look at {path}", e, "check the disk") from e


def sync_path(path: Path) -> None:
    """Sync a file or a directory.

    Raises:
        OSError: the system refused.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(path: Path) -> bool:
    """Sync a file or a directory; False where its file system can't, or lets only others do that."""
    try:
        if path.is_file():
            _write_again(path)
        sync_path(path)
    except OSError as e:
        if is_not_ours(e):
            return False
        what = f"the batch is not stored: can't sync {path}, which Spark needs to repeat it as it was"
        raise storage_error(what, e, "check the disk") from e
    return True


def _write_again(path: Path) -> None:
    """Write a file over itself, so that a sync has all of it to do, but where its file system lets only others do that.

    Raises:
        OSError: the disk failed.
    """
    try:
        with open(path, "r+b") as file:
            data = file.read()
            file.seek(0)
            file.write(data)
    except OSError as e:
        if not is_not_ours(e):
            raise
