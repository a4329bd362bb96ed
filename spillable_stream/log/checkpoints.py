"""Checkpoint files: immutable images of the channel's state at a position of the log.

A checkpoint makes replay short and is never needed for correctness. It is one CHECKPOINT frame,
named by its position: ``checkpoint-FILE-OFFSET``. The newest two are kept, and copies of them in
``backupCheckpointDir`` if there is one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    Frame,
    FrameType,
    encode,
    file_seed,
    parse_header,
    payload_matches,
)
from spillable_stream.format.record import NONSENSE, pack, unpack
from spillable_stream.log.layout import Layout
from spillable_stream.log.wal import Position
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Checkpoints"]

_log = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\Z")
_KEPT = 2


class Checkpoints:
    """The checkpoints of a channel.

    Args:
        fs: the file system.
        layout: where they are.
    """

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs = fs
        self._seed = file_seed(layout.channel, "checkpoint")
        backup = layout.backup_checkpoint_dir
        self._directories = [layout.checkpoint_dir] + ([backup] if backup else [])

    def write(self, position: Position, image: dict[str, Any]) -> None:
        """Make a checkpoint durable in every directory, then remove all but the newest two.

        Raises:
            StorageError: the main directory could not be written; a failing backup is logged.
        """
        frame = Frame.of(FrameType.CHECKPOINT, pack({"position": position, "state": image}))
        data = b"".join(bytes(b) for b in encode(frame, self._seed, time_us=time.time_ns() // 1000))
        name = f"checkpoint-{position.file_id:06d}-{position.offset:012d}"
        for i, directory in enumerate(self._directories):
            try:
                self._fs.write_atomically(directory / name, data)
            except StorageError as e:
                if i == 0:
                    raise
                _log.warning("no backup checkpoint was made: %s", e)
            for _, path in self._in(directory)[_KEPT:]:
                self._fs.remove(path)
            self._remove_temporaries(directory)

    def _remove_temporaries(self, directory: Path) -> None:
        for name in self._fs.list(directory):
            if name.endswith(".tmp"):
                self._fs.remove(directory / name)

    def _in(self, directory: Path) -> list[tuple[Position, Path]]:
        found = [(m, directory / name) for name in self._fs.list(directory) if (m := _NAME.match(name))]
        return sorted(((Position(int(m[1]), int(m[2])), path) for m, path in found), reverse=True)

    def load(self) -> Iterator[tuple[Position, dict[str, Any]]]:
        """Yield position and image of every valid checkpoint, newest first; bad ones are logged."""
        for position, path in self.all():
            try:
                value = self.read(path)
                if value["position"] != position:  # its state is that of another place
                    raise CorruptionError("the checkpoint is of another position than its name says", str(path), 0)
            except (CorruptionError, StorageError, FileNotFoundError) as e:
                _log.warning("passing over a checkpoint: %s", e)
                continue
            yield position, value["state"]

    def all(self) -> list[tuple[Position, Path]]:
        """Return position and file of every checkpoint, newest first, whatever is in the files."""
        return sorted((c for d in self._directories for c in self._in(d)), key=lambda c: c[0], reverse=True)

    def read(self, path: Path) -> dict[str, Any]:
        """Return what a checkpoint file holds: ``position`` and ``state``.

        Raises:
            CorruptionError: it is damaged.
        """
        data = self._fs.read_file(path)
        header = parse_header(data, 0, self._seed)
        payload = data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length] if header else b""
        if header is None or header.type != FrameType.CHECKPOINT or not payload_matches(header, payload):
            raise CorruptionError("the checkpoint is damaged", str(path), 0)
        try:
            value: dict[str, Any] = unpack(payload)
            return {**value, "position": Position(*value["position"]), "state": dict(value["state"])}
        except (CorruptionError, *NONSENSE) as e:
            raise CorruptionError("the checkpoint makes no sense", str(path), 0) from e

    def newest_file_id(self) -> int:
        """Return the number of the newest data file that a checkpoint was made of, or 0."""
        return max((position.file_id for d in self._directories for position, _ in self._in(d)), default=0)

    def oldest_kept(self) -> Position | None:
        """Return the position of the oldest checkpoint that is kept: the log is needed from there on."""
        positions = [position for position, _ in self._in(self._directories[0])]
        return min(positions) if len(positions) >= _KEPT else None
