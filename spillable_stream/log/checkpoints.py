"""Checkpoint files: immutable images of the channel's state at a position of the log.

A checkpoint shortens replay, and is never needed for correctness. It is one CHECKPOINT frame in a file named by its
position: ``checkpoint-FILE-OFFSET``. The newest two are kept, with copies in ``backupCheckpointDir`` if that is set.
The backup directory may be missing, full or broken at any time: a failure there warns once, and stops nothing.

Files with other names are ignored, and so are whole checkpoints of another channel.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from spillable_stream.errors import BackupCheckpointWarning, CorruptionError, StorageError
from spillable_stream.format.file_names import checkpoint_name, log_name, parse_checkpoint
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    Frame,
    FrameHeader,
    FrameType,
    encode,
    file_seed,
    parse_header,
    payload_matches,
)
from spillable_stream.format.packing import NONSENSE, pack, unpack
from spillable_stream.format.record import FileHeader
from spillable_stream.log.directory_ownership import backup_fault
from spillable_stream.log.layout import Layout
from spillable_stream.log.wal import Position
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_names import named
from spillable_stream.shown_value import command
from spillable_stream.state.image import StateImage
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Checkpoint", "Checkpoints"]

_log = log_of(__name__)

_TEMPORARY = ".tmp"
_KEPT = 2


class Checkpoint(NamedTuple):
    """The contents of a checkpoint file.

    Args:
        position: the position in the log where it was created.
        image: the image of the state at that position; proven when the state is restored.
    """

    position: Position
    image: dict[str, object]


class Checkpoints:
    """Reads, writes and removes the checkpoints of a channel.

    Args:
        fs: the file system.
        layout: the channel's files.
        backup_failed: called at the first failure of the backup directory; by default it warns.
    """

    def __init__(
        self, fs: FileSystem, layout: Layout, backup_failed: Callable[[StorageError], None] | None = None
    ) -> None:
        self._fs = fs
        self._layout = layout
        self._seed = file_seed(layout.channel, "checkpoint")
        self._main = layout.checkpoint_dir
        self._backup = layout.backup_checkpoint_dir
        self._backup_failed = backup_failed or self._warn_of_backup
        self._has_warned = False

    # ── the backup directory, whose failures must not matter ────────────────────────────────

    @contextlib.contextmanager
    def _best_effort(self) -> Iterator[None]:
        """Continue without the backup directory if the block fails."""
        try:
            yield
        except StorageError as e:
            if self._has_warned:
                _log.info(
                    "%s: %s can't be used: %s",
                    self._layout.path,
                    named("backupCheckpointDir"),
                    e,
                    extra=fields(self._layout.path, file=self._backup),
                )
                return
            self._has_warned = True
            self._backup_failed(e)

    def _warn_of_backup(self, cause: StorageError) -> None:
        path = self._layout.path
        message = (
            f"{cause}: the channel {path} continues without copies of its checkpoints in "
            f"{named('backupCheckpointDir')}, {self._backup}; mount its disk, or make room there. A directory that is "
            "new there becomes the channel's when every handle is closed and "
            f"'{command('repair', path, '--claim', self._backup)}' is run"
        )
        warnings.warn(BackupCheckpointWarning(message), stacklevel=2)

    def _in_backup(self) -> list[tuple[Position, Path]]:
        found: list[tuple[Position, Path]] = []
        if self._backup is not None:
            with self._best_effort():
                self._require_own_backup(self._backup)
                found = self._in(self._backup)
        return found

    def _require_own_backup(self, backup: Path) -> None:
        """Prove that the backup directory exists and belongs to this channel, before using it.

        Raises:
            StorageError: it is missing, or not proven to be this channel's.
        """
        if not self._fs.exists(backup):
            raise StorageError(f"{backup} is missing")
        if not self._layout.owned:
            return
        fault = backup_fault(self._fs, self._layout, backup)
        if fault is not None:
            raise StorageError(f"{backup} is not proven to be this channel's: {fault}")

    # ── writing ─────────────────────────────────────────────────────────────────────────────

    def write(self, position: Position, image: StateImage) -> None:
        """Write a checkpoint durably to every directory, then remove all but the newest two.

        Raises:
            StorageError: the main directory could not be written; a failing backup only warns.
        """
        frame = Frame.of(FrameType.CHECKPOINT, pack({"position": position, "state": image}))
        data = b"".join(bytes(b) for b in encode(frame, self._seed, time_us=time.time_ns() // 1000))
        name = checkpoint_name(*position)
        self._write_in(self._main, name, data)
        if self._backup is not None:
            with self._best_effort():
                self._require_own_backup(self._backup)
                self._write_in(self._backup, name, data)

    def _write_in(self, directory: Path, name: str, data: bytes) -> None:
        if self._is_foreign(directory / name):
            raise StorageError(
                f"{directory / name} is a checkpoint of another channel; give every channel a directory of its own"
            )
        self._fs.write_atomically(directory / name, data)
        for _, path in self._in(directory)[_KEPT:]:
            self._fs.remove(path)
        for left in self._fs.list_files(directory):
            if left.endswith(_TEMPORARY) and parse_checkpoint(left.removesuffix(_TEMPORARY)):
                self._fs.remove(directory / left)

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove checkpoints durably; in the backup directory only if it can be written.

        Raises:
            StorageError: one could not be removed from the main directory.
        """
        paths = list(paths)
        self._remove([path for path in paths if path.parent != self._backup])
        with self._best_effort():
            self._remove([path for path in paths if path.parent == self._backup])

    def remove_before(self, file_id: int) -> None:
        """Remove the checkpoints that were created in data files before one, durably. Raises what `remove` raises.

        The removal of those that a later one replaced becomes durable, too: if a power cut brought back one of them and
        took the later ones, the newest checkpoint would have no data file.
        """
        old = [path for position, path in self.all() if position.file_id < file_id]
        self.remove(old)
        if self._main not in {path.parent for path in old}:
            self._fs.sync_directory(self._main)

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            self._fs.remove(path)
        for directory in {path.parent for path in paths}:
            self._fs.sync_directory(directory)

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def _in(self, directory: Path) -> list[tuple[Position, Path]]:
        """Return the position and path of this channel's checkpoints in a directory, newest first."""
        return sorted((c for c in self._named(directory) if not self._is_foreign(c[1])), reverse=True)

    def _named(self, directory: Path) -> list[tuple[Position, Path]]:
        found = ((parse_checkpoint(name), directory / name) for name in self._fs.list_files(directory))
        return [(Position(*position), path) for position, path in found if position]

    def foreign(self) -> list[Path]:
        """Return the files that look like whole checkpoints of other channels; a damaged header may look so too."""
        found = self._named(self._main)
        if self._backup is not None:
            with self._best_effort():
                found += self._named(self._backup)
        return [path for _, path in found if self._is_foreign(path)]

    def _is_foreign(self, path: Path) -> bool:
        """Tell whether a file is a whole checkpoint of another channel."""
        try:
            file = self._fs.open(path, readonly=True)
        except (FileNotFoundError, StorageError):
            return False
        try:
            data = file.read(0, HEADER_SIZE_BYTES)
            header = parse_header(data, 0, None)
            if header is None or parse_header(data, 0, self._seed):
                return False
            made = header.time_us, header.payload_crc
            if header != FrameHeader(FrameType.CHECKPOINT, header.length, 0, 0, 0, 0, *made):
                return False  # no version of this package wrote it
            return header.length <= file.size() and payload_matches(header, file.read(HEADER_SIZE_BYTES, header.length))
        except StorageError:
            return False
        finally:
            file.close()

    def load(self) -> Iterator[Checkpoint]:
        """Yield every usable checkpoint, newest first; log the others."""
        for position, path in self.all():
            try:
                found = self.read(path)
                if found.position != position:  # its image is of another position
                    raise CorruptionError("the checkpoint is for another position than its name says", str(path), 0)
                if self.is_left_over(position, path):
                    raise CorruptionError(
                        "the checkpoint belongs to a log that was deleted or repaired since", str(path)
                    )
            except (CorruptionError, StorageError, FileNotFoundError) as e:
                _log.warning("passing over a checkpoint: %s", e, extra=fields(self._layout.path, file=path))
                continue
            yield found

    def all(self) -> list[tuple[Position, Path]]:
        """Return the position and path of every checkpoint, newest first, without reading the images."""
        return sorted(self._in(self._main) + self._in_backup(), key=lambda c: c[0], reverse=True)

    def is_left_over(self, position: Position, path: Path) -> bool:
        """Tell whether a checkpoint is an old one that could not be reached when it should have been removed.

        That happens only in the backup directory. The log does not continue from the position of such a checkpoint.
        """
        if path.parent != self._backup:
            return False
        files = self._layout.log_files(self._fs)
        if not files or position.file_id > files[-1]:
            return False  # data files are missing, and this checkpoint proves it
        if position.file_id not in files:
            return True
        following = [i for i in files if i >= position.file_id]
        return any(not self._follows(later, earlier) for earlier, later in pairwise(following))

    def _follows(self, file_id: int, previous: int) -> bool:
        """Tell whether a data file may continue another one; false only if its header says that it does not."""
        path = self._layout.log_file(file_id)
        seed = file_seed(self._layout.channel, log_name(file_id))
        with contextlib.closing(self._fs.open(path, readonly=True)) as file:
            header = parse_header(file.read(0, HEADER_SIZE_BYTES), 0, seed)
            payload = file.read(HEADER_SIZE_BYTES, min(header.length, file.size())) if header else b""
        if header is None or header.type != FrameType.FILE_HEADER or not payload_matches(header, payload):
            return True
        found = FileHeader.parse(payload).previous
        return found is not None and found[0] == previous

    def read(self, path: Path) -> Checkpoint:
        """Return the contents of a checkpoint file.

        Raises:
            CorruptionError: the file is damaged.
        """
        data = self._fs.read_file(path)
        header = parse_header(data, 0, self._seed)
        payload = data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length] if header else b""
        if header is None or header.type != FrameType.CHECKPOINT or not payload_matches(header, payload):
            raise CorruptionError("the checkpoint is damaged", str(path), 0)
        try:
            value = unpack(payload)
            return Checkpoint(Position(*value["position"]), dict(value["state"]))
        except (CorruptionError, *NONSENSE) as e:
            raise CorruptionError("the checkpoint is invalid", str(path), 0) from e

    def newest_file_id(self) -> int:
        """Return the number of the newest data file that a checkpoint's position is in, or 0."""
        return max((position.file_id for position, _ in self.all()), default=0)
