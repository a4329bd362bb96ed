"""Checks the side files: whether the events that wait in them can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.errors import CorruptionError
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.dues import parse_dues
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.integrity.tolerant_replay import fits
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.delayed_frames import DelayedFrame
from spillable_stream.log.frames import LocatedFrame, Readable, walk
from spillable_stream.log.layout import Layout
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.delays import DelayedFile, Delays
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["DelaysOfDisk", "DelaysPort", "ReadableDelays", "readable_delays", "whole_pairs"]


class ReadableDelays(NamedTuple):
    """The delayed events that can be read.

    Args:
        delays: the state of them.
        due: how many of them were due at a given time.
        lost: how many can't be.
    """

    delays: Delays
    due: int
    lost: int


class _Checked(NamedTuple):
    """A side file without what can't be read of it.

    Args:
        file: the file.
        due: how many of its events were due at a given time.
    """

    file: DelayedFile
    due: int


class DelaysPort(Protocol):
    """Where the side files of a channel are.

    Attributes:
        noun: what one of them is, for people.
        unnamed: what else events may be that no COMMIT names, for people.
    """

    noun: str
    unnamed: str

    def path(self, of: DelayedFile) -> Path:
        """Return what findings call a side file."""

    def seed(self, of: DelayedFile) -> int:
        """Return what its checksums start from."""

    def opened(self, of: DelayedFile) -> AbstractContextManager[Readable]:
        """Open a side file.

        Raises:
            FileNotFoundError: it is not there.
            StorageError: it can't be read.
        """

    def there(self) -> Iterator[DelayedFile]:
        """Yield the side files that are there, whatever names them, as if all of each counted."""


class DelaysOfDisk:
    """The side files of a channel on a disk. It implements `DelaysPort`."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self.noun: str = "side file"
        self.unnamed: str = ""
        self._fs = fs
        self._layout = layout

    def path(self, of: DelayedFile) -> Path:
        """Return what findings call a side file."""
        return DelayedFiles(self._fs, self._layout).path(of)

    def seed(self, of: DelayedFile) -> int:
        """Return what its checksums start from."""
        return file_seed(self._layout.channel, of.seed_name)

    @contextmanager
    def opened(self, of: DelayedFile) -> Iterator[Readable]:
        """Open a side file; see `DelaysPort.opened`."""
        with closing(self._fs.open(self.path(of), readonly=True)) as file:
            yield file

    def there(self) -> Iterator[DelayedFile]:
        """Yield the side files that are there; see `DelaysPort.there`."""
        for number in self._layout.delayed_files(self._fs):
            size_bytes = self._fs.size_bytes(self._layout.delayed_file(number))
            yield DelayedFile(number, 0, 0, size_bytes, 0, 0, 0)


def readable_delays(port: DelaysPort, state: ChannelState, findings: Findings, until_ms: int = 0) -> ReadableDelays:
    """Return the delayed events that can be read; what can't be is a hole of its side file.

    Args:
        port: where the side files are.
        state: says which events wait, by the log, and the schemas.
        findings: collects what is missing or damaged.
        until_ms: when the events are due that are counted, in milliseconds since 1970; 0 for none.

    Raises:
        StorageError: a file can't be read.
    """
    delays, schemas = state.delays, [decode_schema(schema) for schema in state.schemas]
    if any(found.severity is Severity.DAMAGE for found in findings.all()):  # of the log
        known = {port.path(file): file for file in delays.files.values()}
        for whole in port.there():
            _name_unnamed(port, whole, known.get(port.path(whole)), findings)
    checked = [_checked(port, file, schemas, findings, until_ms) for file in delays.files.values()]
    kept = [found for found in checked if found is not None]
    left = {found.file.number: found.file.events for found in kept}
    return ReadableDelays(
        Delays(delays.next_number, [found.file.fields() for found in kept]),
        sum([found.due for found in kept]),
        sum([max(0, file.events - left.get(file.number, 0)) for file in delays.files.values()]),
    )


def _checked(
    port: DelaysPort, file: DelayedFile, schemas: list[pa.Schema], findings: Findings, until_ms: int
) -> _Checked | None:
    """Return a side file without what can't be read of it; None if nothing is left that waits.

    A hole that the log left comes back, if it can be read: a COMMIT that begins behind it proves that another one had
    registered it, which is damaged.
    """
    path = port.path(file)
    try:
        with port.opened(file) as opened:
            found = list(whole_pairs(opened, port.seed(file), file, schemas))
    except FileNotFoundError:
        findings.damage(path, f"the {port.noun} is missing, and with it {_counted(file.events)}")
        return None
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
            size_bytes += frame.length * len(waiting) // len(frame.dues)
    if end < file.end:
        holes.append((end, file.end))
    due = sum([d <= until_ms for d in dues])
    if events == file.events and tuple(holes) == file.holes:
        return _Checked(file, due)
    lost = [first for first, last in holes if (first, last) not in file.holes]
    if lost:
        findings.damage(path, f"{_counted(max(0, file.events - events))} can't be read", lost[0])
    elif events > file.events:
        text = f"no commit that can be read names {_counted(events - file.events)}; a repair brings back what is whole"
        findings.warn(path, text, file.holes[0][0])
    if not events:
        return None
    left = file._replace(events=events, payload_bytes=size_bytes, next_ms=min(dues), holes=tuple(holes))
    return _Checked(left, due)


def _name_unnamed(port: DelaysPort, whole: DelayedFile, known: DelayedFile | None, findings: Findings) -> None:
    """Say which whole events of a side file no COMMIT names that can be read: a damaged one may have done so."""
    path = port.path(whole)
    try:
        with port.opened(whole) as opened:
            found = list(whole_pairs(opened, port.seed(whole), whole))
    except FileNotFoundError:  # it was deleted meanwhile
        return
    named_end = known.end if known else 0
    unnamed = [(begin, len(frame.dues)) for begin, frame, _ in found if frame is not None and begin >= named_end]
    if not found and whole.end:
        findings.warn(path, f"no commit that can be read names the {port.noun}, and no delayed event in it can be read")
    elif unnamed:
        events = sum([count for _, count in unnamed])
        text = f"no commit that can be read names {_counted(events)}{port.unnamed}; a repair keeps a copy"
        findings.warn(path, text, unnamed[0][0])


def _counted(events: int) -> str:
    return counted(events, "delayed event")


def whole_pairs(
    file: Readable, seed: int, of: DelayedFile, schemas: list[pa.Schema] | None = None
) -> Iterator[tuple[int, DelayedFrame | None, int]]:
    """Yield where each whole pair of frames begins, the pair, and where it ends; the header comes without one.

    Args:
        file: the bytes of a side file.
        seed: what its checksums start from.
        of: the file; its end is up to where to look.
        schemas: the channel's; events of none of them can't be delivered. None: of any schema.
    """
    before: LocatedFrame | None = None
    for found in walk(file, seed, 0, of.end):
        if not isinstance(found, LocatedFrame) or not _is_of(found, schemas):
            before = None
        elif found.header.type is FrameType.PUT and before is not None and before.header.count == found.header.count:
            try:
                dues = parse_dues(before.payload or b"", before.header.count)
            except CorruptionError:
                continue
            yield before.offset, DelayedFrame(found.offset, found.header.length, dues), found.end
            before = None
        elif found.header.type is FrameType.SEGMENT_HEADER and not found.offset:
            yield 0, None, found.end
        else:
            before = found if found.header.type is FrameType.DUES else None


def _is_of(found: LocatedFrame, schemas: list[pa.Schema] | None) -> bool:
    """Tell whether a frame has no events, or events of one of these schemas."""
    if schemas is None or found.header.type is not FrameType.PUT:
        return True
    return fits(found.header, found.payload or b"", schemas)
