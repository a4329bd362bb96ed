"""The frames of side files, wherever these are: pairs of a DUES, which says when events are due, and their PUT."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from spillable_stream.errors import CorruptionError
from spillable_stream.format.dues import parse_dues, parse_puts
from spillable_stream.format.frame import Frame, FrameHeader, FrameType, Payload, encode, encode_with
from spillable_stream.format.packing import pack, unpack
from spillable_stream.log.frames import Damage, FrameScanner, Readable, walk
from spillable_stream.state.delays import DelayedFile

__all__ = ["DelayedFrame", "SideFiles", "encode_now", "frames_for", "frames_of"]


class DelayedFrame(NamedTuple):
    """A PUT frame of a side file.

    Args:
        offset: where it starts.
        length: the size of its payload, in bytes.
        dues: when each of its events is due, in milliseconds since 1970, ascending.
        puts: the number of each event's put; empty if all of them are of the one that the file is of.
    """

    offset: int
    length: int
    dues: Sequence[int]
    puts: Sequence[int] = ()


class SideFiles(Protocol):
    """The side files of a channel, for whoever delivers their events or copies them."""

    def expect(self, files: Sequence[DelayedFile], until_ms: int) -> None:
        """Learn which files are read next. Those that are far away are fetched at once; what fails shows later.

        Args:
            files: the files.
            until_ms: up to which due time their events are read, in milliseconds since 1970.
        """

    def frames(self, of: DelayedFile, start: int = 0, *, verify: bool = False) -> Iterator[DelayedFrame]:
        """Yield the PUT frames of a side file that count, in order, without their events.

        Args:
            of: the file, as the state has it.
            start: where to begin; 0, or the end of a pair of frames.
            verify: whether to read the events' payloads too, and prove them.

        Raises:
            DataLossError: the file is missing.
            CorruptionError: a frame is damaged.
            StorageError: it can't be read now.
        """

    def puts(self, of: DelayedFile, offsets: Sequence[int]) -> Generator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the header and the events of PUT frames; raises what `frames` raises.

        Args:
            of: the file.
            offsets: where the frames start.
        """

    def content(self, of: DelayedFile) -> bytes:
        """Return the bytes of a side file that count, once all their frames have proven to be whole.

        Raises what `frames` raises.
        """

    def damaged(self, of: DelayedFile, offset: int) -> CorruptionError:
        """Return the error of a file that is damaged."""

    def remove(self, of: DelayedFile) -> None:
        """Remove a file in which nothing waits any more, unless it goes by itself."""


def encode_now(frames: Sequence[Frame], seed: int) -> list[Payload]:
    """Return the bytes of frames that are written now.

    Args:
        frames: the frames.
        seed: what the file's checksums start from.
    """
    now_us, buffers = time.time_ns() // 1000, list[Payload]()
    for frame in frames:
        buffers += encode(frame, seed, time_us=now_us)
    return buffers


def frames_of(
    file: Readable,
    seed: int,
    of: DelayedFile,
    start: int,
    *,
    damaged: Callable[[int], CorruptionError],
    verify: bool,
) -> Iterator[DelayedFrame]:
    """Yield the PUT frames of a side file that count, in order, without their events.

    Args:
        file: its bytes.
        seed: what its checksums start from.
        of: the file, as the state has it; its holes are passed over.
        start: where to begin.
        damaged: returns the error of a file that is damaged at an offset.
        verify: whether to prove the events' payloads.
    """
    for hole, after in [*of.holes, (of.end, of.end)]:
        if start < hole:
            yield from _frames(file, seed, start, hole, damaged, verify=verify)
        start = max(start, after)


def _frames(
    file: Readable, seed: int, start: int, end: int, damaged: Callable[[int], CorruptionError], *, verify: bool
) -> Iterator[DelayedFrame]:
    scanner = FrameScanner(file, seed, start, end, start if verify else None)
    dues: Sequence[int] | None = None
    puts: Sequence[int] = ()
    for found in scanner:
        header = found.header
        if header.type is FrameType.DUES and dues is None:
            payload = found.payload or b""
            dues, puts = parse_dues(payload, header.count), parse_puts(payload, header.count)
        elif header.type is FrameType.PUT and dues is not None and len(dues) == header.count:
            yield DelayedFrame(found.offset, header.length, dues, puts)
            dues = None
        elif header.type is not FrameType.SEGMENT_HEADER or found.offset:
            raise damaged(found.offset)
    if scanner.offset != end or dues is not None:
        raise damaged(scanner.offset)


def frames_for(file: Readable, end: int, before: int, channel: str, seed: int) -> Iterator[tuple[int, Payload]]:
    """Yield the whole frames of a side file as another one has them: each where it is, under the other's checksums.

    Args:
        file: its bytes.
        end: up to where they count.
        before: what its checksums start from.
        channel: the UUID of the channel that the other file is of. Its header keeps the name that this file has.
        seed: what the other file's checksums start from.

    Returns:
        Offsets, in ascending order, and what is written there.
    """
    for found in walk(file, before, 0, end):
        if isinstance(found, Damage):  # a hole
            continue
        header, payload = found.header, found.payload or b""
        if header.type is FrameType.SEGMENT_HEADER:
            payload = pack({**unpack(payload), "channel": channel})
            header = Frame.of(FrameType.SEGMENT_HEADER, payload).header(time_us=header.time_us)
        at = found.offset
        for part in encode_with(header, payload, seed):
            yield at, part
            at += len(part)
