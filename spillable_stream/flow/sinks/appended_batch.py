"""A batch that is appended to files that can be cut: it counts once a note names it, else it is taken back."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.open_file import OpenFile
from spillable_stream.state.ranges import Range

__all__ = ["AppendedBatch"]


class AppendedBatch:
    """A batch on its way into its files.

    Attributes:
        ranges: its events.
        fresh: the files that are created for it.
    """

    def __init__(self, ranges: list[Range]) -> None:
        self.ranges = ranges
        self.fresh: list[OpenFile] = []
        self._pieces: list[tuple[OpenFile, pa.RecordBatch, int]] = []  # that do not count yet

    def add(self, file: OpenFile, events: pa.RecordBatch, body_bytes: int) -> None:
        """Add some of its events.

        Args:
            file: where they go.
            events: the events.
            body_bytes: the size of their bodies.
        """
        self._pieces.append((file, events, body_bytes))

    def write(self) -> None:
        """Append the events to their files, which are there, and sync these.

        Raises:
            StorageError: the disk refused.
        """
        touched = {id(file): file for file, _, _ in self._pieces}
        begun = set(map(id, self.fresh))
        for file, events, _ in self._pieces:
            assert file.appended is not None
            if id(file) in begun:
                begun.discard(id(file))
                file.appended.append(file.content.begin())
            file.appended.append(file.content.encode(events))
        for file in touched.values():
            assert file.appended is not None
            file.appended.sync()

    def keep(self, now: float) -> None:
        """Let the events count; also once more, where that was interrupted.

        Args:
            now: the time, in monotonic seconds.
        """
        while self._pieces:
            file, events, body_bytes = self._pieces[0]
            assert file.appended is not None
            file.appended.keep()
            file.wrote(events.num_rows, body_bytes, now)
            del self._pieces[0]

    def undo(self) -> None:
        """Cut the files back, and remove those that were created for it; also once more, where that failed.

        Raises:
            StorageError: the file system refused some of it, and did the rest. Nothing must follow in the files before
                an ``undo`` that returns, or a restart: a shorter batch would leave the end of this one behind it.
        """
        refused: StorageError | None = None
        made = set(map(id, self.fresh))
        old = {id(file): file for file, _, _ in self._pieces if id(file) not in made}
        steps = [file.appended.remove for file in self.fresh if file.appended is not None]
        steps += [file.appended.cut for file in old.values() if file.appended is not None]
        for step in steps:
            try:
                step()
            except StorageError as e:
                refused = refused or e
        if refused is not None:
            raise refused
