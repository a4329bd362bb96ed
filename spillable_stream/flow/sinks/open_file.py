"""A file that a sink is writing, and what makes its bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from spillable_stream.flow.sinks.destinations import FileStream
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.state.ranges import Range

__all__ = ["Content", "OpenFile"]


class Content:
    """Makes the bytes of one file."""

    def begin(self) -> bytes:
        """Return what the file begins with."""
        return b""

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer | bytes:
        """Return the bytes of some events."""
        raise NotImplementedError

    def end(self) -> bytes:
        """Return what the file ends with."""
        return b""


@dataclass(slots=True, eq=False)
class OpenFile:
    """A file that is being written.

    Args:
        place: the directory and the beginning of its name.
        final: its path when it is closed.
        in_use: its path now.
        content: makes its bytes.
        appended: the file, where it can be cut.
        stream: the file, where it can't.
        opened_at: when it was opened, in monotonic seconds.
        written_at: when an event was written last.
        events: how many events it has.
        body_bytes: how many bytes of bodies.
        ranges: the IDs of its events, where they are not committed.
        is_published: whether it has its name, where it can't be cut.
    """

    place: str
    final: str
    in_use: str
    content: Content
    appended: OutputFile | None = None
    stream: FileStream | None = None
    opened_at: float = 0.0
    written_at: float = 0.0
    events: int = 0
    body_bytes: int = 0
    ranges: list[Range] = field(default_factory=list)
    is_published: bool = False

    def wrote(self, events: int, body_bytes: int, now: float) -> None:
        """Count events that were written.

        Args:
            events: how many.
            body_bytes: the size of their bodies.
            now: the time, in monotonic seconds.
        """
        self.events += events
        self.body_bytes += body_bytes
        self.written_at = now
