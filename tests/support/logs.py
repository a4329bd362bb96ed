"""Appends to a log and reads it, as a committer does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spillable_stream.format.frame import Frame, FrameType, total_size
from spillable_stream.format.head_page import NO_TIER, CommitPoint
from spillable_stream.log.claim import make_directories
from spillable_stream.log.identity_file import planned_layout, write_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.wal import Position, WriteAheadLog
from spillable_stream.option_types import CreationOptions
from spillable_stream.storage.filesystem import FileSystem
from tests.support.fake_files import FaultyFileSystem

STATE: dict[str, Any] = {"state": "small"}


def identified(fs: FileSystem, path: Path, **options: Any) -> Layout:
    """Make the directories and the identity file of a channel."""
    layout = planned_layout(path, CreationOptions(**options))
    make_directories(fs, layout)
    write_identity(fs, layout)
    return layout


def begin(wal: WriteAheadLog) -> None:
    """Begin the log as a creation does."""
    wal.lock.publish(CommitPoint(NO_TIER))
    wal.create_first_file(lambda: STATE, 1)


def append(wal: WriteAheadLog, payload: bytes) -> Position:
    """Append one PUT frame as a committer does and return where it is."""
    frame = Frame.of(FrameType.PUT, payload, 1)
    with wal.lock.locked(1):
        wal.heal(lambda: STATE)
        at = wal.reserve(total_size([frame]), lambda: STATE)
        wal.append(at, [(frame.header(1, 2, 3), frame.payload, None)], 2, lambda: STATE)
        return at


def contents(wal: WriteAheadLog) -> list[tuple[int, int]]:
    """Return file number and payload size of every published PUT."""
    head = wal.published()
    first = wal.layout.log_files(FaultyFileSystem())[0]
    records = wal.records(Position(first, 0), Position(head.file_id, head.end))
    return [(i, f.header.length) for i, f in records if f.header.type == FrameType.PUT]
