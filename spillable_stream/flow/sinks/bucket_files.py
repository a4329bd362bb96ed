"""The files of a bucket sink: created under names that no other file has, and removed where they failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.buckets import Names
from spillable_stream.flow.sinks.destinations import Files
from spillable_stream.flow.sinks.open_file import Content, OpenFile
from spillable_stream.flow.sinks.output_file import OutputFile

__all__ = ["BucketFiles"]


class BucketFiles:
    """Creates and removes the files of a sink.

    Args:
        files: the file system.
        names: how files are named.
        content: makes the bytes of a file.
        counter: the number of the first file.
        can_be_cut: whether files count batch by batch, and not when they are closed.
    """

    def __init__(
        self, files: Files, names: Names, content: Callable[[], Content], counter: int, *, can_be_cut: bool
    ) -> None:
        self._files, self._names, self._content = files, names, content
        self._counter = counter
        self._can_be_cut = can_be_cut
        self._failed: list[str] = []  # the paths of those that may be there

    def new(self, place: str) -> OpenFile:
        """Return a file of a place that is yet to be created: the note must know it first."""
        while True:
            final = self._final(place)
            in_use = self._in_use(final)
            # In this order: a file of another sink may get its final name in between.
            if not self._files.exists(in_use) and not self._files.exists(final):
                now = time.monotonic()
                return OpenFile(place, final, in_use, self._content(), opened_at=now, written_at=now)

    def takes(self, place: str) -> bool:
        """Tell whether files of a place can have their names; see `Files.takes`."""
        return self._files.takes(self._in_use(self._names.final(place, self._counter)))

    def _in_use(self, final: str) -> str:
        in_use = self._names.in_use(final)
        return in_use if self._can_be_cut else self._files.temporary(in_use, final)

    def _final(self, place: str) -> str:
        self._counter += 1
        return self._names.final(place, self._counter - 1)

    def create(self, file: OpenFile) -> None:
        """Create a file that `new` returned.

        Raises:
            StorageError: another process created one of its name, or the file system refused.
        """
        try:
            if self._can_be_cut:
                file.appended = OutputFile(Path(file.in_use))
            else:
                file.stream = self._files.create(file.in_use)
        except FileExistsError as e:
            raise StorageError(f"{file.in_use} was created by another process; the next file has another name") from e

    def publish(self, file: OpenFile) -> None:
        """Close a file that can't be cut, and give it its name.

        Raises:
            StorageError: the file system refused; it may have its name.
        """
        assert file.stream is not None
        self._files.publish(file.stream, file.in_use, file.final)
        file.is_published = True

    def have_own_name(self, file: OpenFile) -> None:
        """Name a file otherwise if another sink, whose files in use are called otherwise, has taken its name."""
        while file.final != file.in_use and self._files.exists(file.final) and self._files.exists(file.in_use):
            file.final = self._final(file.place)

    def fail(self, paths: Iterable[str]) -> None:
        """Note files that failed, by the paths at which they may be."""
        self._failed += dict.fromkeys(paths)

    def remove_failed(self) -> None:
        """Remove the files that failed. Until then no note may forget them, nor are their events written again.

        Raises:
            StorageError: the file system refused; a file may be there.
        """
        while self._failed:
            self._files.remove(self._failed[0])
            del self._failed[0]
