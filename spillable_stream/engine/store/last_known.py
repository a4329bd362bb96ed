"""What a handle knew last of a channel in an object store, for a process that begins while the store is down, or soon.

It is a state of the channel that was true at its slot. A handle that begins with it is like one that has slept since
then: as soon as the store answers, it follows, or loads the state anew. Nothing that is asked of the store is answered
from here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from spillable_stream.engine.known_state import KnownState
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.packing import NONSENSE
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.checkpoints import Checkpoint, decode_checkpoint, encode_checkpoint
from spillable_stream.objects.location import Location
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["LastKnown", "accept", "known_state_of", "recall", "write_down"]

_log = log_of(__name__)

_FILE = "store"
_WAIT_SECONDS = 1.0  # for another handle that writes down what it knows, which will do

# It goes to each task, too, and a large state takes as long to encode as a request.
_MOST_SENT = 1000  # blocks and groups
_MOST_SENT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LastKnown:
    """A channel as it was known.

    Args:
        channel: its UUID.
        checkpoint: its state after some slot; its base is the newest checkpoint that the handle knew.
    """

    channel: str
    checkpoint: Checkpoint


def write_down(fs: FileSystem, directory: Path, engine: ObjectEngine) -> None:
    """Write down what a handle knows, for `recall`. Where that fails, the file stays as it was.

    Where another handle writes down what it knows for longer than a moment, that has to do.
    """
    log, data = engine.log, _encoded(engine)
    if data is None:
        return
    said = json.dumps({"channel": log.channel, "location": str(log.location), "checkpoint": log.checkpoint_number})
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
        newest = int(found.get("checkpoint", 0))  # earlier versions did not write it
        return _known(found["channel"], data, newest, is_newest=False)
    except (FileNotFoundError, StorageError, CorruptionError, *NONSENSE):
        return None


def known_state_of(engine: ObjectEngine) -> KnownState | None:
    """Return what a handle knows, for `accept`; None if that is too much."""
    log = engine.log
    with engine.follower.as_known as state:
        if len(state.blocks) + len(state.groups) > _MOST_SENT:
            return None
        data = _encoded(engine)
    if data is None or len(data) > _MOST_SENT_BYTES:
        return None
    return KnownState(log.location, log.channel, data, log.checkpoint_number, log.is_newest)


def accept(known: KnownState) -> LastKnown | None:
    """Return a state that another process knew; None if this process can't read it."""
    try:
        return _known(known.channel, known.state, known.checkpoint, is_newest=known.is_newest)
    except (CorruptionError, *NONSENSE):
        return None


def _known(channel: str, data: bytes, newest: int, *, is_newest: bool) -> LastKnown:
    """Return what a handle knew. Its state is of a later slot than the checkpoint with which it began.

    Args:
        channel: the channel's UUID.
        data: its state, as the bytes of a checkpoint.
        newest: the slot of its newest checkpoint; 0 if none is known.
        is_newest: whether a listing has shown that there is no newer one.
    """
    return LastKnown(channel, replace(decode_checkpoint(channel, data), base=newest, is_newest=is_newest))


def _encoded(engine: ObjectEngine) -> bytes | None:
    """Return the state that a handle knows, as the bytes of a checkpoint; None while it does not know its slot."""
    log = engine.log
    with engine.follower.as_known as state:
        tail = log.tail
        if engine.positions.disk.file_id != tail.number:
            return None
        return encode_checkpoint(log.channel, tail.counting, state)
