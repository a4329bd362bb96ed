"""Files of events in a backup: PUT frames one behind the other, whose checksums start from the file's key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import google_crc32c
import pyarrow as pa

from spillable_stream.archive.manifest import ArchivedFile, damaged_backup, place_of
from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    FrameHeader,
    FrameType,
    Payload,
    encode_with,
    file_seed,
    frame_size,
    header_size,
    parse_header,
    payload_matches,
)
from spillable_stream.objects.store import ObjectMissingError, Store, uploading
from spillable_stream.progress import UNTOLD, Meter

__all__ = ["EventFileWriter", "check_file", "read_events", "read_file", "write_file"]

_WRITE_BYTES = 1 << 20
_READ_BYTES = 8 << 20


class EventFileWriter:
    """Writes one file of events.

    Args:
        store: the backup's store.
        channel: the channel's UUID.
        key: the file's key.

    Attributes:
        size_bytes: how large it is by now.
    """

    def __init__(self, store: Store, channel: str, key: str) -> None:
        self._upload = store.upload(key)
        self._key = key
        self._seed = file_seed(channel, key)
        self._parts: list[Payload] = []
        self._parts_bytes = 0
        self._crc = 0
        self._first_id = self._last_id = 0
        self.size_bytes: int = 0

    def write(self, header: FrameHeader, payload: Payload) -> None:
        """Append a frame; its header has the events' own IDs.

        Raises:
            StoreError: the store refused.
        """
        for part in encode_with(header, payload, self._seed):
            self._crc = google_crc32c.extend(self._crc, part)
            self._parts.append(part)
            self._parts_bytes += len(part)
            self.size_bytes += len(part)
        self._first_id = self._first_id or header.write_order_id
        self._last_id = header.write_order_id + header.count - 1
        if self._parts_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            self._upload.write(b"".join(map(bytes, self._parts)))
            self._parts, self._parts_bytes = [], 0

    def finish(self) -> ArchivedFile:
        """Make the file durable, and return what a manifest says about it."""
        self._flush()
        self._upload.finish()
        return ArchivedFile(self._key, self.size_bytes, int(self._crc), self._first_id, self._last_id)

    def discard(self) -> None:
        """Forget what was written."""
        self._upload.discard()


def write_file(store: Store, key: str, data: bytes) -> ArchivedFile:
    """Write a whole file, durably, and return what a manifest says about it.

    Raises:
        StoreError: the store refused.
    """
    with uploading(store, key) as upload:
        upload.write(data)
    return ArchivedFile(key, len(data), int(google_crc32c.value(data)))


def _bytes_of(store: Store, file: ArchivedFile, fault: Callable[[str], CorruptionError]) -> Iterator[pa.Buffer]:
    """Yield the bytes of a file, and prove at the end that they are those that were written.

    Args:
        store: the backup's store.
        file: the file.
        fault: returns the error to raise if they are not, or the file is gone, by what is wrong.
    """
    crc = at = 0
    try:
        while at < file.size_bytes:
            data = store.get_range(file.key, at, min(at + _READ_BYTES, file.size_bytes))
            if not len(data):
                break
            crc, at = google_crc32c.extend(crc, data), at + len(data)
            yield data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    except ObjectMissingError as e:
        raise fault("a file of the backup is gone") from e
    if at != file.size_bytes or int(crc) != file.crc:
        raise fault("a file of the backup is not what was written")


def read_file(store: Store, file: ArchivedFile) -> bytes:
    """Return the bytes of a file.

    Raises:
        CorruptionError: they are not what was written, or the file is gone.
    """
    return b"".join(map(bytes, _bytes_of(store, file, partial(damaged_backup, store, file.key))))


def check_file(store: Store, file: ArchivedFile, meter: Meter = UNTOLD) -> None:
    """Read a file again that was just written.

    Raises:
        CorruptionError: it is not what was written, or gone.
    """
    advice = "right after it was written: check its disk or store, or back up elsewhere"
    for data in _bytes_of(store, file, lambda text: CorruptionError(f"{text}, {advice}", place_of(store, file.key))):
        meter.add(len(data))


def read_events(store: Store, channel: str, file: ArchivedFile) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
    """Yield the frames of a file, each with a proven payload.

    Raises:
        CorruptionError: a frame is damaged, or the file is not what was written.
    """
    seed, rest, offset = file_seed(channel, file.key), pa.py_buffer(b""), 0
    damaged = partial(damaged_backup, store, file.key)
    for data in _bytes_of(store, file, damaged):
        window = data if not len(rest) else pa.py_buffer(bytes(rest) + bytes(data))
        at = 0
        while at + header_size(window, at) <= len(window):
            header = parse_header(window, at, seed)
            if header is None or header.type is not FrameType.PUT:
                raise damaged("a frame of the backup is damaged", offset + at)
            end = at + frame_size(header.length)
            if end > len(window):
                break
            payload = window.slice(at + HEADER_SIZE_BYTES, header.length)
            if not payload_matches(header, payload):
                raise damaged("a frame of the backup is damaged", offset + at)
            yield header, payload
            at = end
        rest, offset = window.slice(at), offset + at
    if len(rest):
        raise damaged("a file of the backup ends within a frame", offset)
