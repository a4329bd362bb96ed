"""Recovering a log by the first to open its channel: replay it to its end, cut a torn tail.

The rules are stated elsewhere: `spillable_stream.log.tail` says where the newest file ends,
`spillable_stream.log.chain` which files count. Here they are obeyed: what they find corrupt is raised, what
does not count is cut or removed.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spillable_stream.counted import counted
from spillable_stream.errors import CorruptionError, DataLossError, TornTailWarning
from spillable_stream.format.file_names import Tier, log_name
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import NO_TIER, TierEnd
from spillable_stream.format.record import FileHeader
from spillable_stream.log.chain import (
    NewestFile,
    first_commit,
    first_of_chain,
    header_fault,
    judge_newest_file,
    stale_file,
)
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.frames import FrameScanner, LocatedFrame, frame_before, whole_frame
from spillable_stream.log.tail import Tail, cut_torn_tail, find_tail, is_reused, refuse, torn_bytes
from spillable_stream.log.wal import Position, WriteAheadLog
from spillable_stream.log_records import fields, log_of
from spillable_stream.shown_value import command
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "RecoveredLog",
    "discard_unfinished_file",
    "is_of_another_history",
    "oldest_file",
    "recover",
    "require_log_of_checkpoint",
]

_log = log_of(__name__)


class RecoveredLog(NamedTuple):
    """What a recovery found.

    Args:
        end: the end of the last whole transaction.
        torn_bytes: how many bytes after it were cut.
    """

    end: Position
    torn_bytes: int


def oldest_file(fs: FileSystem, wal: WriteAheadLog, last: int | None) -> tuple[int, FileHeader]:
    """Return the first data file from which an unbroken chain leads to the last, and its header.

    Args:
        fs: the file system.
        wal: the log.
        last: the newest file that is published; one that comes after it may be half created. None while nothing is.

    Raises:
        CorruptionError: there is no data file, or the header of one of them is damaged.
    """
    files = [i for i in wal.layout.log_files(fs) if last is None or i <= last]
    if not files:
        raise CorruptionError("the channel has no data files", str(wal.layout.path))
    header_of = functools.cache(wal.read_file_header)
    oldest = files[first_of_chain(wal.layout, files, header_of, refuse)]
    header = header_of(oldest)
    if header is None:
        raise header_fault(wal.layout, oldest)
    return oldest, header


def discard_unfinished_file(fs: FileSystem, wal: WriteAheadLog, checkpoints: Checkpoints) -> None:
    """Remove a newest data file whose header was never whole: a roll that a crash cut short.

    Args:
        fs: the file system.
        wal: the log, whose lock is held.
        checkpoints: which prove that a file that they cover was whole.

    Raises:
        CorruptionError: the file's header was whole once, and is damaged; nothing is removed then.
    """
    files = wal.layout.log_files(fs)
    if not files:
        return
    newest = files[-1]
    path = wal.layout.log_file(newest)
    commit = functools.partial(first_commit, fs, path, wal.seed(newest))
    verdict = judge_newest_file(
        files, wal.read_file_header, lambda: max(checkpoints.newest_file_id(), _known_end(wal).file_id), commit
    )
    if verdict is NewestFile.UNFINISHED:
        _log.warning("%s does not count: it was being created when the host stopped", path, extra=fields(file=path))
        fs.remove(path)
        fs.sync_directory(path.parent)
    elif verdict is NewestFile.DAMAGED:
        raise header_fault(wal.layout, newest)
    elif verdict is NewestFile.COMMITTED and (found := commit()) is not None:
        raise header_fault(wal.layout, newest, f" and a commit follows at offset {found.offset}")


def _known_end(wal: WriteAheadLog) -> TierEnd:
    """Return what the head published of this tier, even before a reboot: a lower bound of what was synced."""
    known = wal.lock.head.read_any_boot()
    return NO_TIER if known is None else wal.end_within(known)


def require_log_of_checkpoint(fs: FileSystem, wal: WriteAheadLog, made_at: Position, time_us: int) -> None:
    """Prove that the log reaches the place at which a checkpoint was created.

    It did not where the data directory is older than the checkpoint: one of them was restored, or is elsewhere and was
    left out of a copy. Damage before the checkpoint proves nothing: the checkpoint makes up for it.

    Args:
        fs: the file system.
        wal: the log.
        made_at: the checkpoint's position.
        time_us: the time of the last append that the checkpoint has in it.

    Raises:
        CorruptionError: the log ends before, or was continued in another way.
    """
    path, seed = wal.layout.log_file(made_at.file_id), wal.seed(made_at.file_id)
    with contextlib.closing(fs.open(path, readonly=True)) as file:
        if is_of_another_history(file, seed, made_at.offset, time_us):
            what = "the log holds other commits there: they were written after an older log was restored"
        elif wal.layout.log_files(fs)[-1] == made_at.file_id and _ends_before(file, seed, made_at.offset):
            what = "the log ends before that: it is older than the checkpoint"
        else:
            return
    raise CorruptionError(
        f"a checkpoint was created at offset {made_at.offset}, but {what}. Restore both from the same moment, or run "
        f"'{command('repair', wal.layout.path)}', which continues with the log as it is and says what is lost",
        str(path),
        made_at.offset,
    )


def is_of_another_history(file: File, seed: int, offset: int, time_us: int) -> bool:
    """Tell whether a file holds a frame that a checkpoint made at an offset can't have known.

    Args:
        file: the data file.
        seed: its CRC seed.
        offset: where the checkpoint was created: where an append ended.
        time_us: the time of the last append that the checkpoint has in it.
    """
    last = frame_before(file, seed, min(offset, file.size()))
    if last is None or last.header.type == FrameType.FILE_HEADER:  # that is of the time when the file was created
        return False
    return last.end > offset or last.header.time_us > time_us


def _ends_before(file: File, seed: int, offset: int) -> bool:
    """Tell whether a file holds nothing between its last whole frame before an offset, and its end."""
    if file.size() < offset:
        return True
    last = frame_before(file, seed, offset)
    if last is not None and last.end == offset and whole_frame(file, last) is not None:
        return False  # as nearly always: so an open does not read the file from its beginning
    scanner = FrameScanner(file, seed, 0, offset)
    for _ in scanner:
        pass
    return scanner.offset < offset and torn_bytes(file, seed, scanner.offset, reused=is_reused(file, seed)) == 0


def recover(
    fs: FileSystem,
    wal: WriteAheadLog,
    start: Position,
    apply: Callable[[int, LocatedFrame], None],
) -> RecoveredLog:
    """Replay from ``start`` to the end of the last whole transaction and cut the rest.

    Args:
        fs: the file system.
        wal: the log, whose lock is held.
        start: the end of a checkpoint, or the start of a file whose header holds the state.
        apply: called with (file number, frame) in order.

    Raises:
        CorruptionError: bytes that had been synced are damaged.
        DataLossError: the newest data file is missing.
    """
    files = wal.layout.log_files(fs, wal.tier)
    last = files[-1]
    if start.file_id > last:
        text = f"{log_name(start.file_id)} is missing, and a checkpoint needs it; {wal.layout.restore_it}"
        raise CorruptionError(text, str(wal.layout.path))
    offset = start.offset
    if start.file_id < last:
        # The last file's header names the end of the one before it, and so on: all of that was synced.
        for file_id, found in wal.records(start, Position(last, 0)):
            apply(file_id, found)
        offset = 0
    path = wal.layout.log_file(last)
    known = _known_end(wal)
    if known.file_id > last:
        text = f"{log_name(known.file_id)}, the newest data file, is missing; {wal.layout.restore_it}"
        raise DataLossError(text, str(wal.layout.path))
    if stale_file(files, wal.read_file_header, known, start.file_id) is not None:
        raise CorruptionError(
            f"{log_name(known.file_id)} was committed up to {known.end}, but the file after it says "
            f"{wal.end_of(known.file_id)}: that one is stale",
            str(path),
            0,
        )
    floor = max(offset, known.end if known.file_id == last else 0)
    with contextlib.closing(fs.open(path)) as file:
        tail = find_tail(file, wal.seed(last), offset, floor, refuse, lambda found: apply(last, found))
        cut_torn_tail(file, tail, wal.tier)
        wal.policy.sync_new(file)  # a roll may have been killed before that
    if tail.torn_bytes and wal.tier is Tier.DISK:
        _warn_of_torn_tail(path, tail)  # last: where a filter raises it, the next open finds the file cut
    return RecoveredLog(Position(last, tail.end), tail.torn_bytes)


def _warn_of_torn_tail(path: Path, tail: Tail) -> None:
    message = (
        f"what {path} had after offset {tail.end}, {counted(tail.torn_bytes, 'byte')}, did not count: a transaction "
        "that was never acknowledged"
    )
    warnings.warn(TornTailWarning(message), stacklevel=3)
