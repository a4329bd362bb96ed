"""The copies of a channel's events that a backup writes, in order and in files of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spillable_stream.archive.archived_events import EventFileWriter
from spillable_stream.archive.manifest import ArchivedFile, LastEvent
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import Reader
from spillable_stream.format.extent import Extent
from spillable_stream.format.frame import FrameHeader, Payload
from spillable_stream.objects.store import Store
from spillable_stream.progress import Meter

__all__ = ["EventCopies", "last_event", "own_frames", "reading"]

_FILE_BYTES = 64 << 20


class EventCopies:
    """Copies events to files, those of an earlier backup first.

    Args:
        engine: the channel.
        store: where the backup goes.
        token: what the names of this backup's files end with.
        meter: counts the events.

    Attributes:
        files: the files that are whole, in the order of their events.
        last: the last event that is copied; None if none is.
        through: the write-order ID up to which all events are copied.
        count: how many events were copied now.
        size_bytes: how many bytes the files have that were written for them.
    """

    def __init__(self, engine: Engine, store: Store, token: str, meter: Meter) -> None:
        self._engine = engine
        self._store = store
        self._token = token
        self._meter = meter
        self._writer: EventFileWriter | None = None
        self.files: list[ArchivedFile] = []
        self.last: LastEvent | None = None
        self.through: int = 0
        self.count: int = 0
        self.size_bytes: int = 0

    def begin_behind(self, files: Sequence[ArchivedFile], last: LastEvent) -> None:
        """Continue behind the files of an earlier backup, and its last event."""
        self.files, self.last = list(files), last
        self.through = files[-1].last_id if files else 0

    def copy(self, extents: list[Extent]) -> None:
        """Copy what is not copied yet of these.

        Raises:
            CorruptionError: an event can't be read; it may have left meanwhile.
        """
        new = sum(e.last_id - max(e.first_id - 1, self.through) for e in extents)
        self._meter.begin(self.count + new)
        with reading(self._engine) as reader:
            reader.expect(extents)
            for extent in extents:
                for header, payload in own_frames(reader, extent):
                    self._write(header, payload)
                    self._meter.reach(self.count)

    def _write(self, header: FrameHeader, payload: Payload) -> None:
        if header.write_order_id <= self.through:
            return
        if self._writer is None:
            key = f"events/{header.write_order_id:020}-{self._token}"
            self._writer = EventFileWriter(self._store, self._engine.channel, key)
        self._writer.write(header, payload)
        self.last = last_event(header)
        self.through = header.write_order_id + header.count - 1
        self.count += header.count
        if self._writer.size_bytes >= _FILE_BYTES:
            self.finish()

    def finish(self) -> None:
        """End the file that is being written."""
        if self._writer is not None:
            file = self._writer.finish()
            self._writer = None
            self.files.append(file)
            self.size_bytes += file.size_bytes

    def discard(self) -> None:
        """Forget the file that is being written."""
        if self._writer is not None:
            self._writer.discard()


def last_event(header: FrameHeader) -> LastEvent:
    """Return what identifies the first event of a frame."""
    return LastEvent(header.write_order_id, header.transaction_id, header.time_us, header.payload_crc)


@contextmanager
def reading(engine: Engine) -> Iterator[Reader]:
    """Read a channel's events, and close what reads them."""
    reader = engine.reader()
    try:
        yield reader
    finally:
        reader.close()


def own_frames(reader: Reader, extent: Extent) -> Iterator[tuple[FrameHeader, Payload]]:
    """Yield the frames of an extent with the IDs, the transaction and the time that their events have."""
    for header, payload in reader.frames(extent):
        own = header._replace(
            write_order_id=header.write_order_id + extent.base_id,
            transaction_id=extent.transaction_id or header.transaction_id,
            time_us=extent.time_us or header.time_us,
        )
        yield own, payload
