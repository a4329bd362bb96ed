"""The rules that say which log files count: each file names the end of the one before it.

They are pure decisions. `HeaderOf` reads the header of a file by its number, and returns None where that is not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from pathlib import Path

from spillable_stream.errors import CorruptionError
from spillable_stream.format.file_names import generation_of, in_memory, log_name, memory_file_id
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import TierEnd
from spillable_stream.format.packing import MALFORMED
from spillable_stream.format.record import FileHeader
from spillable_stream.log.frames import LocatedFrame, find_frame
from spillable_stream.log.layout import Layout
from spillable_stream.log.tail import Reporter
from spillable_stream.storage.filesystem import FileSystem

__all__ = [
    "HeaderOf",
    "NewestFile",
    "first_commit",
    "first_of_chain",
    "header_fault",
    "judge_newest_file",
    "named_end",
    "newest_generation",
    "parsed_header",
    "stale_file",
]

HeaderOf = Callable[[int], FileHeader | None]


def named_end(header: FileHeader | None, file_id: int) -> int | None:
    """Return where a file ends by the header of the next one; None if that is damaged, or follows another file."""
    if header is None or header.previous is None or header.previous[0] != file_id:
        return None
    return header.previous[1]


def first_of_chain(layout: Layout, files: Sequence[int], header_of: HeaderOf, report: Reporter) -> int:
    """Return the index of the first file from which an unbroken chain leads to the last.

    Files before a break in the chain are left over from a deletion. Of a file whose header is damaged nobody knows: if
    ``report`` returns, it counts as one that follows the file before it.

    Args:
        layout: the channel's files.
        files: the numbers of the files, ascending; at least one.
        header_of: reads a file's header.
        report: called with files whose header is damaged.
    """
    for at in range(len(files) - 1, 0, -1):
        header = header_of(files[at])
        if header is None:
            report(header_fault(layout, files[at]))
        elif named_end(header, files[at - 1]) is None:
            return at
    if header_of(files[0]) is None:
        report(header_fault(layout, files[0]))
    return 0


def header_fault(layout: Layout, file_id: int, more: str = "") -> CorruptionError:
    """Return what to say of a file whose header is damaged.

    Args:
        layout: the channel's files.
        file_id: the file.
        more: what else is known.
    """
    return CorruptionError(f"the header of {log_name(file_id)} is damaged{more}", str(layout.log_file(file_id)), 0)


class NewestFile(Enum):
    """What a tier's newest log file is."""

    WHOLE = auto()
    """Its header is whole: it counts."""
    UNFINISHED = auto()
    """It was being created when its creator died: it never counted."""
    DAMAGED = auto()
    """Its header is damaged, and was whole once."""
    COMMITTED = auto()
    """Its header is damaged, and it holds a COMMIT, though nothing says that it was published."""


def judge_newest_file(
    files: Sequence[int],
    header_of: HeaderOf,
    published: Callable[[], int],
    commit: Callable[[], LocatedFrame | None],
) -> NewestFile:
    """Tell whether the newest file of a tier counts.

    Args:
        files: the numbers of the tier's files, ascending; at least one.
        header_of: reads a file's header.
        published: finds the newest file that the head or a checkpoint names, 0 if neither names one.
        commit: finds the first whole COMMIT of the newest file. Both are asked only if the header is damaged.
    """
    newest = files[-1]
    if header_of(newest) is not None:
        return NewestFile.WHOLE
    if in_memory(newest):
        follows = len(files) > 1 or newest == memory_file_id(generation_of(newest), 1)
    else:  # if the one before it is damaged too, this was not a roll
        follows = len(files) > 1 and header_of(files[-2]) is not None
    if not follows or newest <= published():
        return NewestFile.DAMAGED
    return NewestFile.UNFINISHED if commit() is None else NewestFile.COMMITTED


def stale_file(files: Sequence[int], header_of: HeaderOf, published: TierEnd, start_file_id: int) -> int | None:
    """Return the file that begins before the end that was published of the file before it, or None: it came back.

    Args:
        files: the numbers of the files, ascending.
        header_of: reads a file's header.
        published: the last end that is known to have been published.
        start_file_id: where the replay starts. Files before it are left over from a deletion that a crash undid.
    """
    following = next((file_id for file_id in files if file_id > published.file_id), None)
    if following is None or start_file_id > published.file_id:
        return None
    end = named_end(header_of(following), published.file_id)
    return following if end is not None and end < published.end else None


def newest_generation(files: Sequence[int]) -> list[int]:
    """Return those of the memory tier's files that are of the newest memory tier."""
    return [file_id for file_id in files if generation_of(file_id) == generation_of(files[-1])]


def first_commit(fs: FileSystem, path: Path, seed: int) -> LocatedFrame | None:
    """Return the first whole COMMIT of a file, wherever it is."""
    file = fs.open(path, readonly=True)
    try:
        return next(find_frame(file, seed, 0, FrameType.COMMIT), None)
    finally:
        file.close()


def parsed_header(payload: bytes | None) -> FileHeader | None:
    """Return the record of a FILE_HEADER, or None where it is malformed."""
    try:
        return FileHeader.parse(payload or b"")
    except MALFORMED:
        return None
