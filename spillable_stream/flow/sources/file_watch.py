"""Ends a wait when files change.

It is a help only: a source looks for itself now and then, on file systems that report no changes (NFS), and where there
are no more watches.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

from spillable_stream.log_records import fields, log_of

__all__ = ["FileWatch"]

_log = log_of("spillable_stream.flow")

_STEP_MS, _MOST_GATHERING_MS = 50, 50  # each step wakes the thread, also of files that rest
_LOOK_MS = 100  # how soon the end of a wait is noticed


class FileWatch:
    """Waits for changes in directories.

    Args:
        directories: the directories.
        is_wanted: whether changes of a path end a wait.
        recursive: whether directories below them are watched, too.
    """

    def __init__(
        self, directories: Iterable[str | Path], is_wanted: Callable[[str], bool], *, recursive: bool = False
    ) -> None:
        self._directories, self._recursive = list(map(str, directories)), recursive
        self._is_wanted = is_wanted
        self._changes: Generator[Any, None, None] | None = None
        self._watched: list[str] = []
        self._has_failed = False

    def wait(self, seconds: float, stopping: threading.Event) -> None:
        """Wait for some seconds, or until a file has changed since the last wait, or ``stopping`` is set."""
        end = time.monotonic() + seconds
        if self._watched != (there := [d for d in self._directories if os.path.isdir(d)]):
            self.close()
            self._watched = there
        while (left := end - time.monotonic()) > 0 and not stopping.is_set():
            if self._changes is None and there and not self._has_failed:
                self._changes = self._begin(stopping)
            if self._changes is None or left < _LOOK_MS / 1000:
                stopping.wait(left)
                return
            try:
                found = next(self._changes, None)
            except (OSError, RuntimeError) as e:
                found, self._has_failed = None, True
                where = ", ".join(self._directories)
                _log.info(
                    "changes in %s are not watched, and are seen at the next look only: %s",
                    where,
                    e,
                    extra=fields(file=where),
                )
            if found is None:
                self.close()
            elif found:
                return

    def _begin(self, stopping: threading.Event) -> Generator[Any, None, None] | None:
        try:
            from watchfiles import watch
        except ImportError:
            self._has_failed = True
            return None
        return watch(
            *self._watched, watch_filter=lambda _, path: self._is_wanted(path), debounce=_MOST_GATHERING_MS,
            step=_STEP_MS, stop_event=stopping, rust_timeout=_LOOK_MS, yield_on_timeout=True,
            recursive=self._recursive, raise_interrupt=False, ignore_permission_denied=True,
        )  # fmt: skip

    def close(self) -> None:
        """Watch no more; the next wait begins again."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None
