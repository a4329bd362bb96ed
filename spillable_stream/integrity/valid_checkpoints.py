"""The checkpoints of a channel that can be read, and those that are damaged."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.format.packing import MALFORMED
from spillable_stream.integrity.findings import Findings
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.layout import Layout
from spillable_stream.log.unproven_directories import claim_advice, unowned_directories
from spillable_stream.log.wal import Position
from spillable_stream.option_names import named
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["ValidCheckpoint", "read_checkpoints"]


@dataclass(frozen=True, slots=True)
class ValidCheckpoint:
    """A checkpoint that can be read.

    Args:
        position: the position in the disk tier's log where it was created.
        path: its file.
        image: the image of the state at that position, as it was read.
    """

    position: Position
    path: Path
    image: Mapping[str, object]


def read_checkpoints(fs: FileSystem, layout: Layout, findings: Findings) -> tuple[list[ValidCheckpoint], list[Path]]:
    """Return the checkpoints that can be read, in the order of the log, and the files of those that are damaged.

    Args:
        fs: the file system.
        layout: the channel's files.
        findings: collects what is wrong with them, and with the directory of their copies.

    Raises:
        StorageError: one can't be read that is not a copy.
    """
    reader = Checkpoints(fs, layout, lambda e: _report_backup(fs, layout, e, findings))
    valid, bad = [], []
    for path in reader.foreign():
        findings.note(path, "the checkpoint belongs to another channel, or its header is damaged; it is left alone")
    for position, path in reader.all():
        try:
            found = reader.read(path)
            if reader.is_left_over(position, path):
                findings.note(
                    path, "the checkpoint belongs to a log that was deleted or repaired since; it is passed over"
                )
                continue
            image = found.image
            if found.position != position:
                raise ValueError("a checkpoint of another position")
            if not isinstance(image["blocks"], list) or not isinstance(image["time"], int):
                raise TypeError("a checkpoint without blocks, or without a time")
        except MALFORMED:
            bad.append(path)
            findings.warn(path, "the checkpoint is damaged; it costs nothing but time: the log says the same", 0)
        except StorageError as e:
            if path.parent != layout.backup_checkpoint_dir:
                raise
            _report_backup(fs, layout, e, findings)
        else:
            valid.append(ValidCheckpoint(position, path, image))
    return sorted(valid, key=lambda c: c.position), bad


def _report_backup(fs: FileSystem, layout: Layout, cause: StorageError, findings: Findings) -> None:
    path = layout.backup_checkpoint_dir or layout.checkpoint_dir
    text = f"{named('backupCheckpointDir')} can't be used, and checkpoints have no copies; nothing needs them: {cause}"
    with suppress(StorageError):
        if path in unowned_directories(fs, layout):
            text += f". {claim_advice(fs, layout, [path])}"
    findings.note(path, text)
