"""The directory that a sink's files are in, or below: its disk may go away while the sink runs.

A sink that creates it again writes to another disk, and misses its note, without which a restart writes events again.
"""

from __future__ import annotations

from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.flow.durable_file import make_directory

__all__ = ["OutputDirectory"]


class OutputDirectory:
    """A directory of this host that is created once.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._was_there = False

    def make(self) -> None:
        """Create the directory if it is missing, the first time; later, prove that it is there.

        Raises:
            StorageError: it can't be created; or it was there, and is gone.
        """
        if self._was_there:
            self.require()
        make_directory(self.path)
        self._was_there = True

    def require(self) -> None:
        """Prove that the directory is there, before something is created in it or below it.

        Raises:
            StorageError: it is gone.
        """
        if not self.path.exists():
            raise StorageError(
                f"{self.path}, where the sink writes, is gone; its disk may not be mounted. Mount it; or, if all that "
                "was in there may be gone, create the directory"
            )
