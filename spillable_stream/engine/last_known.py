"""What a handle knew last of a channel in an object store, for a process that begins while the store is down.

It is a state of the channel that was true at its slot. A handle that begins with it is like one that has slept since
then: as soon as the store answers, it follows, or loads the state anew. Nothing that is asked of the store is answered
from here.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.engine.object_engine import ObjectEngine
from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.packing import NONSENSE
from spillable_stream.log_records import fields
from spillable_stream.objects.checkpoints import Checkpoint, decode_checkpoint, encode_checkpoint
from spillable_stream.objects.location import Location
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["LastKnown", "recall", "write_down"]

_log = logging.getLogger(__name__)

_FILE = "store"
_WAIT_SECONDS = 1.0  # for another handle that writes down what it knows, which will do


@dataclass(frozen=True, slots=True)
class LastKnown:
    """A channel as it was known.

    Args:
        channel: its UUID.
        checkpoint: its state after some slot.
    """

    channel: str
    checkpoint: Checkpoint


def write_down(fs: FileSystem, directory: Path, engine: ObjectEngine) -> None:
    """Write down what a handle knows, for `recall`. Where that fails, the file stays as it was.

    Where another handle writes down what it knows for longer than a moment, that has to do.
    """
    log = engine.log
    with engine.follower.as_known as state:
        tail = log.tail
        if engine.positions.disk.file_id != tail.number:
            return
        data = encode_checkpoint(log.channel, tail, state)
    said = json.dumps({"channel": log.channel, "location": str(log.location)})
    try:
        _write_alone(fs, directory / _FILE, said.encode() + b"\n" + data)
    except StorageError as e:
        _log.warning(
            "a process that starts while %s does not answer can't put to %s: %s",
            log.location,
            directory,
            e,
            extra=fields(log.location, file=directory / _FILE),
        )


def _write_alone(fs: FileSystem, path: Path, data: bytes) -> None:
    lock = FileLock.open(fs, path.with_name(f"{path.name}.lock"))
    try:
        if lock.acquire(_WAIT_SECONDS):
            fs.write_atomically(path, data)
    finally:
        lock.close()


def recall(fs: FileSystem, directory: Path, location: Location) -> LastKnown | None:
    """Return what a handle of this host knew last of the channel at a location; None if that is not there, or damaged.

    Args:
        fs: the file system.
        directory: where it was written down.
        location: where the channel is.
    """
    try:
        said, _, data = fs.read_file(directory / _FILE).partition(b"\n")
        found = json.loads(said)
        if found["location"] != str(location):
            return None
        return LastKnown(found["channel"], decode_checkpoint(found["channel"], data))
    except (FileNotFoundError, StorageError, CorruptionError, *NONSENSE):
        return None
