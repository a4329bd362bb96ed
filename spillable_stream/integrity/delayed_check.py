"""Checks the side files: whether the events that wait in them can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from spillable_stream.errors import CorruptionError
from spillable_stream.format.dues import parse_dues
from spillable_stream.format.file_names import delayed_name
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.log.delayed_files import DelayedFrame
from spillable_stream.log.frames import LocatedFrame, walk
from spillable_stream.log.layout import Layout
from spillable_stream.state.delays import DelayedFile, Delays
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["readable_delays"]


def readable_delays(fs: FileSystem, layout: Layout, delays: Delays, findings: Findings) -> Delays:
    """Return the delayed events that can be read; what can't be is a hole of its side file.

    Args:
        fs: the file system.
        layout: the channel's files.
        delays: the events that wait, by the log.
        findings: collects what is missing or damaged.

    Raises:
        StorageError: a file can't be read.
    """
    if any(found.severity is Severity.DAMAGE for found in findings.all()):  # of the log
        for number in layout.delayed_files(fs):
            _name_unnamed(fs, layout, number, delays.files.get(number), findings)
    kept = [_checked(fs, layout, file, findings) for file in delays.files.values()]
    return Delays(delays.next_number, [file for file in kept if file is not None])


def _checked(fs: FileSystem, layout: Layout, file: DelayedFile, findings: Findings) -> DelayedFile | None:
    """Return a side file without what can't be read of it; None if nothing is left that waits."""
    path = layout.delayed_file(file.number)
    try:
        opened = fs.open(path, readonly=True)
    except FileNotFoundError:
        findings.damage(path, f"the side file is missing, and with it {file.events:,} delayed events")
        return None
    with closing(opened):
        found = list(_frames(opened, file_seed(layout.channel, delayed_name(file.number)), file))
    size_bytes = events = 0
    dues: list[int] = []
    holes, end = [], 0
    for begin, frame, after in found:
        if begin > end:
            holes.append((end, begin))
        end = after
        if frame is not None:
            waiting = [d for row, d in enumerate(frame.dues) if (d, frame.offset, row) > file.delivered]
            dues += waiting
            events += len(waiting)
            size_bytes += frame.header.length * len(waiting) // frame.header.count
    if end < file.end:
        holes.append((end, file.end))
    if events == file.events and tuple(holes) == file.holes:
        return file
    if tuple(holes) != file.holes:
        offset = next(first for first, last in holes if (first, last) not in file.holes)
        text = f"{max(0, file.events - events):,} delayed events can't be read"
        findings.damage(path, text, offset)
    if not events:
        return None
    return file._replace(events=events, payload_bytes=size_bytes, next_ms=min(dues), holes=tuple(holes))


def _name_unnamed(fs: FileSystem, layout: Layout, number: int, known: DelayedFile | None, findings: Findings) -> None:
    """Say which whole events of a side file no COMMIT names that can be read: a damaged one may have done so."""
    path = layout.delayed_file(number)
    with closing(fs.open(path, readonly=True)) as opened:
        whole = DelayedFile(number, 0, 0, opened.size(), 0, 0, 0)
        found = list(_frames(opened, file_seed(layout.channel, path.name), whole))
    named_end, holes = (known.end, known.holes) if known else (0, ())
    unnamed = [
        (begin, frame.header.count)
        for begin, frame, _ in found
        if frame is not None and (begin >= named_end or any(first <= begin < last for first, last in holes))
    ]
    if unnamed:
        events = sum([count for _, count in unnamed])
        findings.warn(
            path, f"{events:,} delayed events are in no commit that can be read; a repair keeps a copy", unnamed[0][0]
        )


def _frames(file: File, seed: int, of: DelayedFile) -> Iterator[tuple[int, DelayedFrame | None, int]]:
    """Yield where each whole pair of frames begins, the pair, and where it ends; the header comes without one."""
    before: LocatedFrame | None = None
    for found in walk(file, seed, 0, of.end):
        is_whole = isinstance(found, LocatedFrame) and not any(a <= found.offset < b for a, b in of.holes)
        if not is_whole or not isinstance(found, LocatedFrame):
            before = None
        elif found.header.type is FrameType.PUT and before is not None and before.header.count == found.header.count:
            try:
                dues = parse_dues(before.payload or b"", before.header.count)
            except CorruptionError:
                continue
            yield before.offset, DelayedFrame(found.offset, found.header, dues), found.end
            before = None
        elif found.header.type is FrameType.SEGMENT_HEADER and not found.offset:
            yield 0, None, found.end
        else:
            before = found if found.header.type is FrameType.DUES else None
