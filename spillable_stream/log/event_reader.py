"""Reads extents of the log as record batches, and verifies every payload.

Files are read with large positioned reads rather than mapped: a disk error then raises an exception instead of
killing the process with a signal, and one copy at memory speed costs less than the checksum.

`EventReader` walks the frames itself, without `spillable_stream.log.frames.FrameScanner`. It reads into Arrow buffers
and returns events as slices, without a copy; it adapts the size of its reads to the frames; and it reads only the
payloads of events. With the scanner, a frame of one 100-byte event would take a third longer, and one of 1 MB half
as long again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.format.batch import decode_batch
from spillable_stream.format.dues import parse_dues
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import in_memory, seed_name
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    MOST_HEADER_BYTES,
    PUT,
    FrameHeader,
    dues_of,
    file_seed,
    frame_size,
    header_size,
    message_of,
    parse_header,
    payload_matches,
)
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.log.directories import out_of_place
from spillable_stream.log.identity_file import has_identity
from spillable_stream.log.layout import Layout
from spillable_stream.state.ranges import among_events, events_in
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["EventReader", "ReadBatch", "events_of", "frames_in_order", "missing_event"]

_FIRST_WINDOW_BYTES = 64 << 10
_BETWEEN_BYTES = 4 << 10  # allowance for the frames up to the next PUT: a COMMIT, and takes
_NOTHING = pa.py_buffer(b"")
_MOST_ENDS = 256
_LARGEST_WINDOW_BYTES = 1 << 20  # stays in a core's own cache until its checksum is verified


class ReadBatch(NamedTuple):
    """Adjacent events of one transaction.

    Args:
        first_id: the write-order ID of the first event; the others follow without gaps.
        transaction_id: their transaction.
        time_us: when it was committed, in microseconds since 1970.
        schema_id: the number of the schema of ``batch``.
        batch: the events.
        expires_us: when they expire, in microseconds since 1970; 0 for never.
        dues_ms: in a spool, when each is due where it is shipped to, in milliseconds since 1970; else empty.
        payload_crc: the checksum of the payload of their frame, which may have more events.
    """

    first_id: int
    transaction_id: int
    time_us: int
    schema_id: int
    batch: pa.RecordBatch
    expires_us: int = 0
    dues_ms: Sequence[int] = ()
    payload_crc: int = 0

    @property
    def last_id(self) -> int:
        """The write-order ID of the last event."""
        return self.first_id + int(self.batch.num_rows) - 1

    def clip(self, first_id: int, last_id: int) -> ReadBatch:
        """Return the events from ``first_id`` to ``last_id``, without a copy."""
        if first_id == self.first_id and last_id >= self.last_id:
            return self
        start, rows = first_id - self.first_id, min(last_id, self.last_id) - first_id + 1
        dues_ms = self.dues_ms[start : start + rows]
        return self._replace(first_id=first_id, batch=self.batch.slice(start, rows), dues_ms=dues_ms)


def events_of(
    header: FrameHeader, payload: pa.Buffer, extent: Extent, schema_of: Callable[[int], pa.Schema]
) -> ReadBatch:
    """Return the events of a PUT frame with valid checksums.

    Args:
        header: the frame's header.
        payload: its payload.
        extent: the extent that the frame is in.
        schema_of: returns a schema of the channel by its number.

    Raises:
        CorruptionError: the payload does not match the header.
    """
    try:
        is_timed = header.ttl_us or header.has_dues
        message = message_of(header, payload) if is_timed else payload  # a call less for most
        batch = decode_batch(message, schema_of(header.schema_id))
    except IndexError as e:
        raise CorruptionError(f"a frame has the unknown schema {header.schema_id}") from e
    if batch.num_rows != header.count:
        raise CorruptionError(f"a frame has {counted(batch.num_rows, 'event')}, and its header says {header.count}")
    transaction_id = extent.transaction_id or header.transaction_id
    time_us = extent.time_us or header.time_us
    expires_us = time_us + header.ttl_us if header.ttl_us else 0
    dues_ms = parse_dues(dues_of(header, payload), header.count) if header.has_dues else ()
    first_id, schema_id, crc = header.write_order_id + extent.base_id, header.schema_id, header.payload_crc
    fields = first_id, transaction_id, time_us, schema_id, batch, expires_us, dues_ms, crc
    return new_tuple(ReadBatch, fields)


def frames_in_order(
    found: Iterable[tuple[FrameHeader, pa.Buffer, *tuple[Any, ...]]], extent: Extent, path: str, offset: int
) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
    """Yield the header and the payload of each frame that an extent covers.

    Args:
        found: the PUT frames from that of the first event on, each with its header and its payload first.
        extent: the extent.
        path: where the frames are, for errors.
        offset: where they begin there.

    Raises:
        CorruptionError: one is missing.
    """
    expected = extent.first_id
    for header, payload, *_ in found:
        first_id = header.write_order_id + extent.base_id
        if first_id > expected:
            raise missing_event(expected, path, offset)
        if first_id + header.count <= expected:
            continue
        yield header, payload
        expected = first_id + header.count
        if expected > extent.last_id:
            return


def missing_event(event_id: int, path: str, offset: int) -> CorruptionError:
    """Return what is said of an event that is not where the channel's state says.

    Args:
        event_id: its write-order ID.
        path: where it should be.
        offset: from where on there.
    """
    return CorruptionError(f"event {event_id} is not where the channel's state says", path, offset)


class EventReader:
    """Reads the events of extents.

    Args:
        fs: the file system.
        layout: the channel's files.
        schema_of: returns a schema of the channel by its number.
        end_of: returns the offset up to which a file is written; None for its size. Preallocated space after it
            is not read, because the kernel would read far ahead there.
    """

    def __init__(
        self,
        fs: FileSystem,
        layout: Layout,
        schema_of: Callable[[int], pa.Schema],
        end_of: Callable[[int | str], int | None] = lambda _: None,
    ) -> None:
        self._fs = fs
        self.layout = layout
        self._schema_of = schema_of
        self._end_of = end_of
        self._open: tuple[int | str, FileLock, int] | None = None  # the file's number or name, the file, its seed
        self._held: FileLock | None = None  # the file while it is read
        self._window_bytes = _FIRST_WINDOW_BYTES
        self._large = False  # whether the last frame was larger than a window
        self._last: tuple[Extent, int, ReadBatch] | None = None  # the last frame's extent, its end, its events
        # Where frames of one block end, by the event that comes next: threads that take beside each other read in
        # another order than they have claimed. A flush moves earlier events there, between those of the block; the ends
        # of these are not kept: the last of them would be taken for where the block's first event is.
        self._ends: dict[int, int] = {}
        self._ends_in: tuple[int | str, int] = 0, 0  # that block: its file and where it begins
        self._ends_after: int = 0  # the first event of it that was ever wanted

    def expect(self, extents: Sequence[Extent]) -> None:
        """Learn what will be read next. Nothing is fetched ahead: the kernel does so with the files of this host."""

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        """Yield the events of an extent, in order.

        Raises:
            DataLossError: the file was removed.
            CorruptionError: a frame is damaged or missing; names the events.
        """
        expected = extent.first_id
        if self._last is not None and self._last[0][:2] == extent[:2]:  # the same block, so its IDs are contiguous
            whole = self._last[2]
            if whole.first_id <= expected <= whole.last_id:
                yield (part := whole.clip(expected, extent.last_id))
                expected = part.last_id + 1
        if expected > extent.last_id:
            return
        begin = offset = self._begin(extent, expected)
        try:
            for header, payload, end in self._frames(extent, offset, expected):
                try:
                    whole = events_of(header, payload, extent, self._schema_of)
                except CorruptionError as e:
                    raise self._damaged(extent, end - frame_size(header.length)) from e
                self._last = (extent, end, whole)
                if whole.first_id > expected:
                    break
                yield (part := whole.clip(expected, extent.last_id))
                expected = part.last_id + 1
                if expected > extent.last_id:
                    return
        finally:
            if self._held is not None:
                self._release()
            if self._last is not None and 0 < self._last[1] - begin <= _LARGEST_WINDOW_BYTES:
                self._window_bytes = self._last[1] - begin + _BETWEEN_BYTES  # the next read is mostly as long
        raise missing_event(expected, str(self.layout.file(extent.file)), offset)

    def frames(self, extent: Extent) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the header and the undecoded payload of each frame that an extent covers, in order.

        Raises what `read` raises.
        """
        offset = self._begin(extent, extent.first_id)
        try:
            found = self._frames(extent, offset, extent.first_id)
            yield from frames_in_order(found, extent, str(self.layout.file(extent.file)), offset)
        finally:
            self._release()

    def _begin(self, extent: Extent, first_id: int) -> int:
        """Return where to look for an event: behind the frame before it, if it is known, or behind the last one."""
        offset = extent.offset
        if self._ends_in == extent[:2]:
            offset = self._ends.get(first_id, offset)
        if self._last is not None and self._last[0][:2] == extent[:2] and first_id > self._last[2].last_id:
            offset = max(offset, self._last[1])
        return offset

    def _frames(self, extent: Extent, offset: int, first_id: int) -> Iterator[tuple[FrameHeader, pa.Buffer, int]]:
        """Yield the header, verified payload and end of each PUT frame from the one that holds ``first_id`` on."""
        file, seed = self._file(extent)
        written = self._end_of(extent.file)
        file_end = file.size() if written is None else written
        if self._ends_in != extent[:2]:
            self._ends_in, self._ends, self._ends_after = extent[:2], {}, extent.first_id
        self._ends_after = min(self._ends_after, extent.first_id)
        base, window, size = 0, _NOTHING, self._window_bytes
        while True:
            at = offset - base
            if at < 0 or (at + MOST_HEADER_BYTES > len(window) and at + header_size(window, at) > len(window)):
                # Large frames tend to follow each other. Reading a part of one with its header would read it twice.
                wanted = MOST_HEADER_BYTES if self._large else size
                window, base, at = _read(file, offset, wanted, file_end), offset, 0
                size = min(size * 2, _LARGEST_WINDOW_BYTES)
            header = parse_header(window, at, seed)
            if header is None:
                raise self._damaged(extent, offset)
            start = at + HEADER_SIZE_BYTES
            end = offset + frame_size(header.length)
            if header.type is PUT:
                behind_id = header.write_order_id + extent.base_id + header.count
                if behind_id > self._ends_after:
                    self._ends[behind_id] = end
                    if len(self._ends) > _MOST_ENDS:
                        del self._ends[next(iter(self._ends))]
            if header.type is PUT and behind_id > first_id:
                self._large = end - offset > size
                if start + header.length > len(window):
                    if end > file_end:
                        raise self._damaged(extent, offset)
                    window = _read(file, offset, max(frame_size(header.length), size), file_end)
                    base, start = offset, HEADER_SIZE_BYTES
                    if start + header.length > len(window):  # cut meanwhile, as a segment that is staged in again
                        raise self._damaged(extent, offset)
                payload = window.slice(start, header.length)
                if not payload_matches(header, payload):
                    raise self._damaged(extent, offset)
                yield header, payload, end
            offset = end

    def _damaged(self, extent: Extent, offset: int) -> CorruptionError:
        if not self._fs.exists(self.layout.file(extent.file)):  # its bytes are another file's by now
            return _gone(extent, self.layout.file(extent.file))
        return CorruptionError(
            f"a frame is damaged {among_events(extent.first_id, extent.last_id)}",
            str(self.layout.file(extent.file)),
            offset,
        )

    def _file(self, extent: Extent) -> tuple[File, int]:
        """Return the open file of an extent, and its CRC seed.

        A file on disk is not used again until `_release`. Without the lock, which may be refused, a reader that is
        overtaken finds other checksums, and then that the file's name is gone.

        Raises:
            ChannelClosedError: the channel was moved or removed.
            DataLossError: the file was removed.
        """
        if self._open is None or self._open[0] != extent.file:
            path = self.layout.file(extent.file)
            try:
                file = self._fs.open(path, readonly=True)
            except FileNotFoundError as e:
                if not has_identity(self._fs, self.layout.path):
                    raise out_of_place(self.layout, self.layout.path) from e
                raise _gone(extent, path) from e
            self._open = (extent.file, FileLock(file), file_seed(self.layout.channel, seed_name(extent.file)))
        _, lock, seed = self._open
        if not in_memory(extent.file):
            self._held = lock if lock.try_acquire(shared=True) else None
        return lock.file, seed

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None and not held.file.is_closed():
            held.release()

    def close(self) -> None:
        """Close the file that was read last; another `read` opens it again."""
        if self._open:
            self._open[1].close()
            self._open = None


def _read(file: File, offset: int, size: int, file_end: int) -> pa.Buffer:
    return file.read_buffer(offset, max(0, min(size, file_end - offset)))


def _gone(extent: Extent, path: Path) -> DataLossError:
    return DataLossError(
        f"{events_in([(extent.first_id, extent.last_id)], 'are')} gone: taken by every group, or removed with the file",
        str(path),
    )
