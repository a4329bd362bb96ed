"""Closed files get their names, again and again while the file system refuses."""

from __future__ import annotations

import os
import time
from pathlib import Path

from spillable_stream.errors import StorageError
from spillable_stream.flow.durable_file import sync_directory
from spillable_stream.flow.sinks.open_file import OpenFile
from spillable_stream.log_records import fields, log_of
from spillable_stream.system_errors import storage_error

__all__ = ["Naming", "rename"]

_log = log_of("spillable_stream.flow")


def rename(in_use: str, final: str) -> None:
    """Give a file its name, durably; one that has it stays as it is.

    Raises:
        StorageError: the file system refused.
    """
    if in_use == final:
        return
    if os.path.exists(final) and os.path.exists(in_use):
        raise StorageError(f"can't rename {in_use} to {final}, which is another file; move that one away")
    try:
        os.rename(in_use, final)
    except OSError as e:
        if not (isinstance(e, FileNotFoundError) and os.path.exists(final)):  # an interrupt came behind the change
            raise storage_error(f"can't rename {in_use} to {final}", e, "let this user write to the directory") from e
    sync_directory(Path(final).parent)


class Naming:
    """Gives files of this host their names.

    Args:
        tries: how often it is tried; 0 for no limit.
        retry_seconds: the wait between two tries.
    """

    def __init__(self, tries: int, retry_seconds: float) -> None:
        self._tries, self._retry_seconds = tries, retry_seconds
        self.begin("")

    def begin(self, sink: str) -> None:
        """Begin without files, for a sink of this name."""
        self._sink = sink
        self._unnamed: dict[str, tuple[OpenFile, int, float]] = {}

    def name(self, file: OpenFile, tries: int = 1) -> None:
        """Give a closed file its name, now or later.

        Args:
            file: the file.
            tries: how often it was tried, this time included.
        """
        try:
            rename(file.in_use, file.final)
        except StorageError as e:
            if self._tries and tries >= self._tries:
                _log.error(
                    "%s: %s; it keeps the name %s",
                    self._sink,
                    e,
                    file.in_use,
                    extra=fields(component=self._sink, file=file.in_use),
                )
                return
            _log.warning(
                "%s: %s; it is tried again in %g s",
                self._sink,
                e,
                self._retry_seconds,
                extra=fields(component=self._sink, file=file.in_use, seconds=self._retry_seconds),
            )
            self._unnamed[file.in_use] = (file, tries, time.monotonic() + self._retry_seconds)

    def again(self, *, at_end: bool = False) -> None:
        """Try those again whose time has come; at the end, all."""
        for in_use, (file, tries, at) in list(self._unnamed.items()):
            if at_end or time.monotonic() >= at:
                del self._unnamed[in_use]
                self.name(file, tries + 1)

    def next_at(self) -> float:
        """Return when the next one is tried, in monotonic seconds."""
        return min((at for _, _, at in self._unnamed.values()), default=float("inf"))

    def lengths(self) -> dict[str, int]:
        """Return the files that are yet to get their names, each with its length in bytes."""
        return {path: f.appended.length for path, (f, _, _) in self._unnamed.items() if f.appended is not None}
