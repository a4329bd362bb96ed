"""Replay by whoever comes first to a channel: find the end of the log, cut a torn tail.

Every COMMIT says at which offset its append began; all before that offset was synced first. So a
file's last append is the only one that a power cut can have torn, and a frame that is not whole
is a torn tail if and only if nothing after it, nor the head, nor a checkpoint, proves that its
bytes had been synced.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable
from typing import NamedTuple

from spillable_stream.errors import CorruptionError, DataLossError, TornTailWarning
from spillable_stream.format.file_names import Tier, log_name
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import NO_TIER, TierEnd
from spillable_stream.format.record import CommitRecord, FileHeader
from spillable_stream.log.append_check import ENDS, AppendChecker
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.frames import FrameScanner, LocatedFrame, find_frame, frame_before
from spillable_stream.log.wal import Position, WriteAheadLog
from spillable_stream.storage.filesystem import File, FileSystem

__all__ = [
    "ENDS",
    "Recovered",
    "discard_unfinished_file",
    "first_commit",
    "is_of_another_history",
    "oldest_file",
    "recover",
    "require_log_of_checkpoint",
    "written_bytes",
]

_log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """What a recovery found.

    Args:
        end: the end of the last whole transaction.
        torn_bytes: how many bytes after it were cut.
    """

    end: Position
    torn_bytes: int


def oldest_file(fs: FileSystem, wal: WriteAheadLog, last: int | None = None) -> tuple[int, FileHeader]:
    """Return the first data file from which an unbroken chain leads to the last, and its header.

    Files before a break in the chain are left-overs of a deletion.

    Args:
        fs: the file system.
        wal: the log.
        last: the newest file that is published; one that comes after it may be half made. None while nothing is.

    Raises:
        CorruptionError: there is no data file, or the last one has no valid header.
    """
    files = [i for i in wal.layout.log_files(fs) if last is None or i <= last]
    if not files:
        raise CorruptionError("the channel has no data files", str(wal.layout.path))
    oldest = files[-1]
    header = wal.read_file_header(oldest)
    if header is None:
        raise CorruptionError(f"the header of {log_name(oldest)} is damaged", str(wal.layout.log_file(oldest)), 0)
    for file_id in reversed(files[:-1]):
        if header.previous is None or header.previous[0] != file_id:
            break
        earlier = wal.read_file_header(file_id)
        if earlier is None:
            raise CorruptionError(f"the header of {log_name(file_id)} is damaged", str(wal.layout.log_file(file_id)), 0)
        oldest, header = file_id, earlier
    return oldest, header


def discard_unfinished_file(fs: FileSystem, wal: WriteAheadLog, checkpoints: Checkpoints) -> None:
    """Remove a newest data file whose header was never whole: a roll that a crash cut short.

    Args:
        fs: the file system.
        wal: the log, whose lock is held.
        checkpoints: which prove that a file that they were made of was whole.

    Raises:
        CorruptionError: the file holds commits, or a checkpoint or the head names it: its header was whole once.
            Or the file before it is damaged too: nothing is removed then.
    """
    files = wal.layout.log_files(fs)
    if not files or wal.read_file_header(files[-1]) is not None:
        return
    path = wal.layout.log_file(files[-1])
    known = _known_end(wal)
    before_is_whole = len(files) > 1 and wal.read_file_header(files[-2]) is not None  # else this is no roll
    if files[-1] <= max(checkpoints.newest_file_id(), known.file_id) or not before_is_whole:
        raise CorruptionError(f"the header of {path.name} is damaged", str(path), 0)
    if (found := first_commit(fs, wal, files[-1])) is not None:
        raise CorruptionError(
            f"the header of {path.name} is damaged and a commit follows at offset {found.offset}", str(path), 0
        )
    _log.warning("%s does not count: it was being made when the host stopped", path)
    fs.remove(path)
    fs.sync_directory(path.parent)


def first_commit(fs: FileSystem, wal: WriteAheadLog, file_id: int) -> LocatedFrame | None:
    """Return the first whole COMMIT of a file, wherever it is."""
    file = fs.open(wal.layout.log_file(file_id), readonly=True)
    try:
        return next(find_frame(file, wal.seed(file_id), 0, FrameType.COMMIT), None)
    finally:
        file.close()


def _known_end(wal: WriteAheadLog) -> TierEnd:
    """Return what the head published of this tier, even before a reboot: a lower bound of what was synced."""
    known = wal.lock.head.read_any_boot()
    if known is None:
        return NO_TIER
    return known.memory if wal.tier is Tier.MEMORY else known.disk


def require_log_of_checkpoint(fs: FileSystem, wal: WriteAheadLog, made_at: Position, time_us: int) -> None:
    """Prove that the log got to where a checkpoint was made of it.

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
        f"a checkpoint was made at offset {made_at.offset}, and {what}. Restore both from the same moment; or let "
        "'spillable repair' continue with the log as it is, and say what is lost",
        str(path),
        made_at.offset,
    )


def is_of_another_history(file: File, seed: int, offset: int, time_us: int) -> bool:
    """Tell whether a file holds a frame that a checkpoint made at an offset can't have known.

    Args:
        file: the data file.
        seed: its CRC seed.
        offset: where the checkpoint was made: where an append ended.
        time_us: the time of the last append that the checkpoint has in it.
    """
    last = frame_before(file, seed, min(offset, file.size()))
    if last is None or last.header.type == FrameType.FILE_HEADER:  # that is of the time when the file was made
        return False
    return last.end > offset or last.header.time_us > time_us


def _ends_before(file: File, seed: int, offset: int) -> bool:
    """Tell whether a file holds nothing between its last whole frame before an offset, and its end."""
    if file.size() < offset:
        return True
    scanner = FrameScanner(file, seed, 0, offset)
    for _ in scanner:
        pass
    return scanner.offset < offset and written_bytes(file, scanner.offset) == 0


def recover(
    fs: FileSystem,
    wal: WriteAheadLog,
    start: Position,
    apply: Callable[[int, LocatedFrame], None],
) -> Recovered:
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
        raise CorruptionError(f"{log_name(start.file_id)} is missing, which a checkpoint needs", str(wal.layout.path))
    offset = start.offset
    if start.file_id < last:
        # The last file's header names the end of the one before it, and so on: all of that was synced.
        for file_id, found in wal.records(start, Position(last, 0)):
            apply(file_id, found)
        offset = 0
    path = wal.layout.log_file(last)
    known = _known_end(wal)
    if known.file_id > last:
        raise DataLossError(f"{log_name(known.file_id)}, the newest data file, is missing", str(wal.layout.path))
    replayed = start.file_id <= known.file_id < last  # what is before is left of a deletion that a crash undid
    if replayed and (trusted := wal.end_of(known.file_id)) < known.end:
        raise CorruptionError(
            f"{log_name(known.file_id)} was committed up to {known.end}, but the file after it says "
            f"{trusted}: that one is stale",
            str(wal.layout.log_file(last)),
            0,
        )
    floor = max(offset, known.end if known.file_id == last else 0)
    file = fs.open(path)
    try:
        end, torn = _recover_last(file, wal.seed(last), offset, floor, lambda found: apply(last, found))
        if torn and wal.tier is Tier.DISK:  # behind the end in memory may be what a file held before it was used again
            message = (
                f"{torn} bytes after offset {end} of {path} do not count: a transaction that was never acknowledged"
            )
            warnings.warn(TornTailWarning(message), stacklevel=2)
        if torn or wal.tier is Tier.MEMORY:  # zeros that are preallocated stay
            file.truncate(end)
        if wal.tier is Tier.DISK:
            file.sync()
            fs.sync_directory(path.parent)  # a roll may have been killed before that
    finally:
        file.close()
    return Recovered(Position(last, end), torn)


def _recover_last(
    file: File, seed: int, start: int, floor: int, apply: Callable[[LocatedFrame], None]
) -> tuple[int, int]:
    """Apply the whole transactions of the file that was written last.

    Returns:
        The end of the last whole transaction, and how many non-zero bytes come after it.
    """
    if file.size() < floor:
        raise CorruptionError(
            f"the file was cut to {file.size()} bytes; {floor} had been synced", str(file.path), floor
        )
    synced = floor
    for found in FrameScanner(file, seed, start):
        if found.header.type == FrameType.COMMIT:
            synced = max(synced, _append_start(found))
    end = start
    waiting: list[LocatedFrame] = []  # of an append that may not be whole
    scanner, appends, wrong = FrameScanner(file, seed, start, verify_from=synced), AppendChecker(start), None
    for found in scanner:
        if (wrong := appends.wrong(found)) is not None:
            break
        waiting.append(found)
        if found.header.type in ENDS:
            for whole in waiting:
                apply(whole)
            waiting, end = [], found.end
    damaged = scanner.offset if wrong is None else end
    file.drop_read_ahead(damaged)
    proof = _proof_of_sync(file, seed, damaged, synced)
    if proof is not None:
        what = "a committed frame is damaged" if wrong is None else wrong
        raise CorruptionError(f"{what}: {proof}", str(file.path), damaged)
    # Nobody knows of a sync of the last append that failed, after which another one syncs nothing: it is written again.
    if synced < end:
        file.write(synced, [file.read(synced, end - synced)])
    return end, written_bytes(file, end)


def _proof_of_sync(file: File, seed: int, damaged: int, synced: int) -> str | None:
    """Return why the bytes at ``damaged`` must have been synced once, or None if nothing says so."""
    if damaged < synced:
        return f"everything up to offset {synced} had been synced"
    for found in find_frame(file, seed, damaged, FrameType.COMMIT):
        start = _append_start(found)
        if start > damaged:
            return f"the commit at offset {found.offset} was written after everything up to {start} had been synced"
    return None


def _append_start(commit: LocatedFrame) -> int:
    """Return where the append of a COMMIT began; 0, which proves nothing, if it makes no sense."""
    try:
        return CommitRecord.parse(commit.payload or b"").start
    except CorruptionError:
        return 0


def written_bytes(file: File, start: int) -> int:
    """Return how many bytes from ``start`` on lead up to the last that is not zero."""
    last, step = start, 1 << 20
    file.drop_read_ahead(start)
    for begin, end in file.data_ranges(start):
        for base in range(begin, end, step):
            kept = file.read(base, min(step, end - base)).rstrip(b"\0")
            if kept:
                last = base + len(kept)
    return last - start
