"""The directory that a sink's files are in, or below: its disk may go away while the sink runs.

A sink that creates it again writes to another disk, and misses its note, without which a restart writes events again.
"""

from __future__ import annotations

from pathlib import Path

from spillable_stream.durable_names import is_there
from spillable_stream.errors import StorageError
from spillable_stream.flow.durable_file import make_directory
from spillable_stream.system_errors import storage_error

__all__ = ["OutputDirectory"]


class OutputDirectory:
    """A directory of this host that is created once."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._was_there = False

    @classmethod
    def of_pattern(cls, path: str) -> OutputDirectory:
        """Return the directory that the files of all events are in, or below.

        Args:
            path: a path that may have escapes, such as ``/out/%Y/x``: what is above its first one is the directory. The
                escape ``%%`` is a letter of a name.
        """
        before, escape, _ = path.replace("%%", "\0").partition("%")
        return cls(Path((before[: before.rfind("/") + 1] if escape else before).replace("\0", "%")))

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
            StorageError: it is gone, or its disk can't say.
        """
        try:
            found = is_there(f"{self.path}/")  # of a file the system says no
        except OSError as e:
            raise storage_error(f"can't look at {self.path}, where the sink writes", e, "check its disk") from e
        if not found:
            raise StorageError(
                f"{self.path}, where the sink writes, is gone; its disk may not be mounted. Mount it; or, if all that "
                "was in there may be gone, create the directory"
            )
