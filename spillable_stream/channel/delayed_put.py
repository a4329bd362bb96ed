"""The delayed events of a put transaction: held until its commit, or staged before that if they are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spillable_stream.channel.delayed_events import DelayedEvents
from spillable_stream.channel.event import Event
from spillable_stream.engine.delayed_puts import Delayed, Staging
from spillable_stream.engine.engine import Engine

__all__ = ["DelayedPut"]


class DelayedPut:
    """The delayed events of one transaction, on their way to the files in which they wait.

    Args:
        engine: the channel.
        events: holds them until they are staged or committed.
    """

    def __init__(self, engine: Engine, events: DelayedEvents) -> None:
        self._engine = engine
        self._events = events
        self._ready: Delayed | None = None
        self._staging: Staging | None = None

    @property
    def is_staged(self) -> bool:
        """Whether some of them are in files of their own already."""
        return self._staging is not None

    def add(self, events: Sequence[Event | Mapping[str, Any]], due_ms: int, ttl_us: int) -> None:
        """Add events, as `DelayedEvents.add` does."""
        self._ready = None
        self._events.add(events, due_ms, ttl_us)

    def add_batch(self, batch: pa.RecordBatch, dues_ms: Sequence[int], ttl_us: int) -> None:
        """Add the rows of a batch, as `DelayedEvents.add_batch` does."""
        self._ready = None
        self._events.add_batch(batch, dues_ms, ttl_us)

    def stage_if_many(self) -> None:
        """Write them to files of their own, if there are many, so that memory stays bounded.

        Raises:
            StorageError: the storage refused; some of them may be written, so the transaction can only be rolled back.
        """
        if self._events.size_bytes > self._engine.follower.state.options.max_inline_bytes:
            if self._staging is None:
                self._staging = self._engine.deliveries.stage()
            self._write(self._staging)

    def _write(self, staging: Staging) -> None:
        compression = self._engine.follower.state.options.compression
        staging.write(self._events.drain(self._engine.deliveries.clock_ms(), compression))

    def finish(self) -> Delayed | None:
        """Return them, encoded, for the commit; None without any. A commit that is tried again has the same ones.

        Raises:
            StorageError: the storage refused. Staged events can only be rolled back then.
        """
        if self._ready is None and self._staging is not None:
            self._write(self._staging)
            self._ready = self._staging.finish()
        elif self._ready is None:
            deliveries, compression = self._engine.deliveries, self._engine.follower.state.options.compression
            chunks = self._events.chunks(deliveries.clock_ms(), compression)
            self._ready = deliveries.delay(chunks) if chunks else None
        return self._ready

    def close(self) -> None:
        """Let go of the files: a commit has adopted them, or may have."""
        if self._staging is not None:
            self._staging.close()

    def discard(self) -> None:
        """Remove the files: no commit was tried."""
        if self._staging is not None:
            self._staging.discard()
