"""The newest file of a log, to which one appends: open, in its place, and this channel's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spillable_stream.counted import counted
from spillable_stream.errors import DataLossError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import TierEnd
from spillable_stream.log.frames import FrameScanner
from spillable_stream.log.layout import Layout
from spillable_stream.log.log_files import LogFiles
from spillable_stream.log.preallocation import Preallocation
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["WrittenFile"]


class WrittenFile:
    """The file that is written; the commit lock is held.

    Args:
        fs: the file system.
        layout: the channel's files.
        files: the log's files.
        preallocation: what is reserved of the file.
        require_directories: raises if the file's directory was moved, replaced or unmounted, and the file with it.
    """

    def __init__(
        self,
        fs: FileSystem,
        layout: Layout,
        files: LogFiles,
        preallocation: Preallocation,
        require_directories: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._layout = layout
        self._files = files
        self._preallocation = preallocation
        self._require_directories = require_directories
        self._open: tuple[int, File] | None = None
        self._proven = 0  # the file that was proven to be this channel's since it was opened

    def open(self, file_id: int) -> File:
        """Return the file, which is where it was: nothing may be acknowledged that is written to one that was removed.

        Raises:
            DataLossError: it was removed, replaced or cut.
            ChannelClosedError: its directory was.
        """
        if self._open is not None and self._open[0] == file_id:
            if not self._open[1].is_in_place():
                raise self._lost(self._open[1].path, "was removed or replaced")
            return self._open[1]
        self.close()
        path = self._layout.log_file(file_id)
        try:
            self._open = (file_id, self._fs.open(path))
        except FileNotFoundError as e:
            raise self._lost(path, "is missing") from e
        self._proven = 0
        self._preallocation.begin(0)
        return self._open[1]

    def use(self, file_id: int, file: File, end: int) -> None:
        """Write to a file from now on that was just created, up to an end."""
        self.close()
        self._open = (file_id, file)
        self._proven = file_id
        self._preallocation.begin(end)

    def require_whole(self, file: File, published: TierEnd) -> None:
        """Prove once that a file with the right name is this channel's, and reaches to the published end.

        Raises:
            DataLossError: it was replaced or cut.
        """
        if self._proven == published.file_id:
            return
        found = next(iter(FrameScanner(file, self._files.seed(published.file_id), 0)), None)
        if found is None or found.header.type != FrameType.FILE_HEADER:
            raise self._lost(file.path, "was replaced: it does not begin with its header")
        if file.size() < published.end:
            raise self._lost(file.path, f"was cut to {counted(file.size(), 'byte')}, and held {published.end:,}")
        self._proven = published.file_id

    def _lost(self, path: Path, what: str) -> DataLossError:
        self.close()
        self._require_directories()
        text = f"{path.name}, the newest data file, {what}; close every handle of the channel and open it again"
        return DataLossError(text, str(path))

    def leave(self, current: int) -> None:
        """Close the file, if the log continues in another: an open file keeps its disk space."""
        if self._open and self._open[0] < current:
            self.close()

    def close(self) -> None:
        """Close the file; nothing is written."""
        if self._open:
            self._open[1].close()
            self._open = None
