"""The one rule of torn and corrupt: where a log file ends that was written last, if no head says so.

Every COMMIT says at which offset its append began; all before that offset was synced first. So a file's last
append is the only one that a power cut can have torn. Bytes that are not a whole frame, or a frame in a wrong place,
are a torn tail, unless something proves that they had been synced: the head, a checkpoint, or a COMMIT after them
that began behind them. Then they are corrupt.

`find_tail` decides, `cut_torn_tail` obeys. A `Reporter` hears of what is corrupt: open raises it, verify continues
behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from spillable_stream.counted import counted
from spillable_stream.errors import CorruptionError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import FrameType
from spillable_stream.format.packing import MALFORMED
from spillable_stream.format.record import FileHeader
from spillable_stream.log.append_check import ENDS, TolerantAppendChecker, parsed_commit
from spillable_stream.log.frames import FrameScanner, LocatedFrame, find_headers, whole_frame
from spillable_stream.storage.file import File

__all__ = [
    "Reporter",
    "Tail",
    "cut_torn_tail",
    "find_tail",
    "is_reused",
    "pass_over",
    "refuse",
    "torn_bytes",
    "written_bytes",
]

Reporter = Callable[[CorruptionError], None]
"""Called with each corruption that a rule finds: it raises it, or returns, and the rule continues behind it."""


def refuse(error: CorruptionError) -> NoReturn:
    """Raise a corruption: what open does."""
    raise error


def pass_over(error: CorruptionError) -> None:
    """Pass over a corruption: what verify does, whose replay finds the same bytes, and tells what was in them."""


class Tail(NamedTuple):
    """Where a file's log ends.

    Args:
        end: the end of the last whole transaction, or of what had been synced if that is more.
        synced: up to where the file is proven to have been synced.
        torn_bytes: how many bytes after `end` an append left that was never acknowledged.
        is_cut: whether the file ends before `synced`.
        is_reused: whether behind all that may be what the file held before it was used again.
    """

    end: int
    synced: int
    torn_bytes: int
    is_cut: bool
    is_reused: bool = False


def find_tail(
    file: File,
    seed: int,
    start: int,
    floor: int,
    report: Reporter,
    apply: Callable[[LocatedFrame], None] = lambda _: None,
) -> Tail:
    """Return where the log of the file ends that was written last.

    Args:
        file: the file.
        seed: its CRC seed.
        start: where an append began: the start of the file, or where a checkpoint was created.
        floor: up to where the head or a checkpoint says that the file was synced.
        report: called with corruption.
        apply: called with the frames of every whole transaction, in order.
    """
    size = file.size()
    if size < floor:
        report(
            CorruptionError(
                f"the file was cut to {counted(size, 'byte')}; {floor:,} had been synced", str(file.path), floor
            )
        )
    synced = _synced_by_commits(file, seed, start, floor)
    scanner, appends = FrameScanner(file, seed, start, size, verify_from=synced), TolerantAppendChecker(start)
    end, waiting = start, list[LocatedFrame]()  # of an append that may not be whole
    while True:
        fault = None
        for found in scanner:
            if (fault := appends.fault(found)) is not None:
                break
            waiting.append(found)
            if found.header.type in ENDS:
                for whole in waiting:
                    apply(whole)
                waiting, end = [], found.end
        damaged = scanner.offset if fault is None else end
        file.drop_read_ahead(damaged)
        proof, last = _proof_of_sync(file, seed, damaged, synced)
        if proof is None or (fault is None and damaged >= size):
            break
        report(CorruptionError(f"{fault or 'a committed frame is damaged'}: {proof.text}", str(file.path), damaged))
        synced = max(synced, proof.synced)
        if fault is None:
            appends.fault(scanner.skip_damage(size))
        elif found.header.type in ENDS:
            waiting, end = [], found.end
    if proof is None and end < damaged:
        proof, last = _proof_of_sync(file, seed, end, synced)
    if proof is not None:
        report(CorruptionError(f"no COMMIT ends the frames here: {proof.text}", str(file.path), end))
        end = synced = max(end, proof.synced)
    reused = is_reused(file, seed)
    is_known = reused and proof is None  # the search for a proof saw every frame that is left
    torn = last - end if is_known else torn_bytes(file, seed, end, reused=reused)
    return Tail(end, synced, torn, size < floor, reused)


def cut_torn_tail(file: File, tail: Tail, tier: Tier) -> None:
    """Write the last append again, and cut what is behind it. The caller syncs the file.

    Args:
        file: the newest file of a tier's log.
        tail: what `find_tail` found in it.
        tier: the tier.
    """
    # Nobody knows of a sync of the last append that failed, after which another one syncs nothing: it is written again.
    if tail.synced < tail.end:
        file.write(tail.synced, [file.read(tail.synced, tail.end - tail.synced)])
    if tail.torn_bytes or tail.is_reused or tier is Tier.MEMORY:  # zeros that are preallocated stay
        file.truncate(tail.end)


class _Proof(NamedTuple):
    """Why bytes must have been synced once, and up to where."""

    text: str
    synced: int


def _proof_of_sync(file: File, seed: int, damaged: int, synced: int) -> tuple[_Proof | None, int]:
    """Return why the bytes at ``damaged`` must have been synced once, or None, and where the last frame behind ends."""
    if damaged < synced:
        return _Proof(f"everything up to offset {synced} had been synced", synced), damaged
    size = file.size()
    last = min(damaged, size)
    for found in find_headers(file, seed, damaged):
        last = max(last, min(found.end, size))
        if found.header.type == FrameType.COMMIT and (start := _append_start(whole_frame(file, found))) > damaged:
            text = f"the commit at offset {found.offset} was written after everything up to {start} had been synced"
            return _Proof(text, start), last
    return None, last


def _synced_by_commits(file: File, seed: int, start: int, floor: int) -> int:
    """Return up to where a file had been synced, as the floor and the COMMITs before any damage say."""
    synced = floor
    for found in FrameScanner(file, seed, start):
        if found.header.type == FrameType.COMMIT:
            synced = max(synced, _append_start(found))
    return synced


def _append_start(commit: LocatedFrame | None) -> int:
    """Return where the append of a COMMIT began; 0, which proves nothing, if it is invalid."""
    record = None if commit is None else parsed_commit(commit.payload)
    return record.start if record is not None else 0


def is_reused(file: File, seed: int) -> bool:
    """Tell whether the header of a log file says that the file held other bytes before."""
    found = next(iter(FrameScanner(file, seed, 0)), None)
    return found is not None and found.header.type == FrameType.FILE_HEADER and _says_reused(found.payload)


def _says_reused(payload: bytes | None) -> bool:
    try:
        return FileHeader.parse(payload or b"").reused
    except MALFORMED:
        return False


def torn_bytes(file: File, seed: int, start: int, *, reused: bool) -> int:
    """Return how many bytes from ``start`` on were written to a log file after what counts of it.

    In a file that held other bytes before, only frames tell: those that have its seed.
    """
    if not reused:
        return written_bytes(file, start)
    ends = (min(found.end, file.size()) for found in find_headers(file, seed, start))
    return max(ends, default=start) - start


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
