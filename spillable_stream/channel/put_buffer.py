"""What a put transaction holds until its commit: events in columns, then frames, and if it is large a staged file."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spillable_stream.channel.event_columns import EventColumns
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.task_plans import StagedFile
from spillable_stream.errors import DiskSpaceError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.dues import pack_dues
from spillable_stream.format.frame import PUT, Frame, total_size
from spillable_stream.format.row_values import row_reader
from spillable_stream.objects.store import StoreFullError

__all__ = ["MOST_EVENTS", "PutBuffer"]

MOST_EVENTS = 8192
"""So many events are encoded together."""

_MOST_BYTES = 4 << 20
_INLINE_MEMORY_BYTES = 64 << 20


class PutBuffer:
    """The events of a put transaction. A method that raises may leave a part of what it was given: then roll back.

    Args:
        engine: the channel.
        schema: the channel's schema.
        schema_id: its number in the channel.

    Attributes:
        waiting: how many rows or events are not encoded yet.
        frames: what is encoded, and not staged.
        has_dues: whether a frame says when its events are due.
        segment: the staged file, if there is one: everything that is encoded goes there.
    """

    def __init__(self, engine: Engine, schema: pa.Schema, schema_id: int) -> None:
        self.waiting: int = 0
        self.frames: list[Frame] = []
        self.has_dues: bool = False
        self.segment: StagedFile | None = None
        self._engine = engine
        self._schema = schema
        self._schema_id = schema_id
        self._rows: list[dict[str, Any]] = []
        self._events: EventColumns | None = None
        self._ttl_us = self._due_ms = 0  # of what waits
        self._held_bytes = 0  # the size of `frames`
        self._frame_bytes = engine.follower.frame_bytes
        self._compression = engine.follower.state.options.compression

    def begin_run(self, ttl_us: int, due_ms: int) -> None:
        """Begin to add events of a ttl, in microseconds, and a due time: all events of a frame have the same ttl."""
        if ttl_us != self._ttl_us or due_ms != self._due_ms:
            self.flush()
            self._ttl_us, self._due_ms = ttl_us, due_ms

    def add_rows(self, rows: list[dict[str, Any]]) -> None:
        """Add rows of a typed channel, as `row_reader` reads them."""
        self._rows += rows
        self.waiting += len(rows)
        if self.waiting >= MOST_EVENTS:
            self.flush()

    def add_events(self, columns: EventColumns) -> None:
        """Add events."""
        for piece in columns.pieces(_MOST_BYTES):
            if self._events is None:
                self._events = piece
            else:
                self._events.extend(piece)
            self.waiting += len(piece)
            if self.waiting >= MOST_EVENTS or self._events.size_bytes >= _MOST_BYTES:
                self.flush()

    def flush(self) -> None:
        """Encode what waits."""
        if not self.waiting:
            return
        rows, events, count, ttl_us = self._rows, self._events, self.waiting, self._ttl_us
        self._rows, self._events, self.waiting = [], None, 0
        dues_ms = array("q", [self._due_ms]) * count if self._due_ms else array("q")
        if events is None:
            self.add(row_reader(self._schema).batch(rows), ttl_us, dues_ms)
        elif self._compression == "none" and (message := events.small_message()) is not None:
            packed = pack_dues(dues_ms) if dues_ms else b""
            self._hold([Frame.of(PUT, message, count, self._schema_id, ttl_us, packed)], bool(dues_ms))
        else:
            self.add(events.batch(), ttl_us, dues_ms)

    def add(self, batch: pa.RecordBatch, ttl_us: int, dues_ms: Sequence[int] = ()) -> None:
        """Add a batch in the channel's schema, and stage everything if it is too much for the log.

        Args:
            batch: the events.
            ttl_us: the ttl of each, in microseconds; 0 for none.
            dues_ms: when each is due, where this transaction carries it, in milliseconds since 1970; else empty.
        """
        frames = encode_batch(batch, self._schema_id, self._compression, ttl_us, dues_ms, self._frame_bytes)
        self._hold(frames, bool(dues_ms))

    def _hold(self, frames: list[Frame], has_dues: bool) -> None:
        """Keep frames for the commit, staged where it is too much for the log."""
        self.has_dues = self.has_dues or has_dues
        self.frames += frames
        self._held_bytes += total_size(frames)
        most_bytes = self._engine.follower.state.options.max_inline_bytes
        if self._held_bytes > most_bytes and self._held_bytes > self._inline_bytes():
            self._stage()

    def _inline_bytes(self) -> int:
        """Return how many bytes may go into memory's log, which is cheaper than a file; 0 without a memory tier."""
        return _INLINE_MEMORY_BYTES if self._engine.memory_put_bytes() else 0

    def _stage(self) -> None:
        """Move the frames to the staged file, so that memory stays bounded."""
        try:
            self._write_segment()
        except StoreFullError:  # a part of them may be in the object, and the engine has nothing to make room with
            raise
        except DiskSpaceError:  # nothing of them was written
            self._engine.make_room()
            self._write_segment()
        self.frames, self._held_bytes = [], 0

    def _write_segment(self) -> None:
        if self.segment is None:
            memory_bytes, state = self._engine.memory_put_bytes(), self._engine.state
            self.segment = self._engine.log.stage(
                memory_bytes=memory_bytes,
                minimum_required_space=state.options.minimum_required_space,
                waiting_bytes=state.delays.payload_bytes,
            )
        self.segment.write(self.frames)

    def finish(self) -> list[SegmentRef]:
        """Stage the rest where anything is staged, and return what a commit adopts, durable by then."""
        if self.segment is None:
            return []
        if self.frames:
            self._stage()
        return [self.segment.finish()]

    def close(self) -> None:
        """Forget everything, and close the staged file: a commit adopted it, or may have, which a checkpoint knows."""
        self._forget()
        if self.segment is not None:
            self.segment.close()

    def discard(self) -> None:
        """Forget everything, and remove the staged file: nobody can have adopted it."""
        self._forget()
        if self.segment is not None:
            self.segment.discard()

    def _forget(self) -> None:
        self._rows, self._events, self.waiting, self.frames = [], None, 0, []
