"""The descriptor of an open file. It is closed when it is forgotten, as a bare number would not be.

An interrupt between its two lines could still leave one open. Only the main thread gets interrupts, and sources and
sinks of an agent run in threads of their own.
"""

from __future__ import annotations

import os
from pathlib import Path
from weakref import finalize

__all__ = ["Descriptor"]


class Descriptor:
    """Opens a file.

    Args:
        path: where it is.
        flags: how, as `os.open` takes it.

    Attributes:
        number: what the system calls it; -1 once it is closed.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, path: str | Path, flags: int) -> None:
        self.number: int = os.open(path, flags | os.O_CLOEXEC, 0o666)
        self._forgotten = finalize(self, os.close, self.number)
        self._forgotten.atexit = False

    def is_at(self, path: Path) -> bool:
        """Tell whether a path is still that of the open file: else a restart would not find what is written to it.

        Raises:
            OSError: the system can't tell.
        """
        try:
            return os.path.samestat(os.stat(path), os.fstat(self.number))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        """Close it, once.

        Raises:
            OSError: the system refused; it is closed anyway.
        """
        if self._forgotten.detach() is not None:
            number, self.number = self.number, -1
            os.close(number)
