"""Closed files get their names, again and again while the file system refuses."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from spillable_stream.counted import counted
from spillable_stream.durable_names import is_there
from spillable_stream.errors import StorageError
from spillable_stream.flow.durable_file import sync_directory
from spillable_stream.flow.sinks.open_file import OpenFile
from spillable_stream.log_records import Seldom, log_of
from spillable_stream.system_errors import storage_error

__all__ = ["Naming", "rename"]

_log = log_of("spillable_stream.flow")

_MOST_UNNAMED = 1000  # files that wait for their names at once


def rename(in_use: str, final: str) -> None:
    """Give a file its name, durably; one that has it stays as it is.

    Raises:
        StorageError: the file system refused.
    """
    if in_use == final:
        return
    try:
        is_taken = is_there(final) and is_there(in_use)
    except OSError as e:
        raise storage_error(f"can't look at {final}", e, "check the disk") from e
    if is_taken:
        raise StorageError(f"can't rename {in_use} to {final}, which is another file; move that one away")
    try:
        os.rename(in_use, final)
    except OSError as e:
        if not (isinstance(e, FileNotFoundError) and os.path.exists(final)):  # an interrupt came behind the change
            raise storage_error(f"can't rename {in_use} to {final}", e, "let this user write to the directory") from e
    sync_directory(Path(final).parent)


class _Unnamed(NamedTuple):
    """A closed file that has yet to get its name.

    Args:
        file: the file.
        tries: how often it was tried.
        next_at: when it is tried again, in monotonic seconds.
    """

    file: OpenFile
    tries: int
    next_at: float


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
        self._unnamed: dict[str, _Unnamed] = {}
        self._why = ""  # of the last one that could not get its name
        self._warning = Seldom()

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
                _log.of(self._sink, file=file.in_use).error("%s; it keeps the name %s", e, file.in_use)
                return
            self._unnamed[file.in_use] = _Unnamed(file, tries, time.monotonic() + self._retry_seconds)
            self._why = str(e)
            if self._warning.is_due():
                _log.of(self._sink, file=file.in_use, seconds=self._retry_seconds).warning(
                    "%s; %s tried again in %g s", e, counted(len(self._unnamed), "file", "are"), self._retry_seconds
                )

    def again(self, *, at_end: bool = False) -> None:
        """Try those again whose time has come; at the end, all."""
        for in_use, one in list(self._unnamed.items()):
            if at_end or time.monotonic() >= one.next_at:
                del self._unnamed[in_use]
                self.name(one.file, one.tries + 1)

    @property
    def trouble(self) -> str:
        """Which files have yet to get their names, in words; "" if none has."""
        if not self._unnamed:
            return ""
        return f"{counted(len(self._unnamed), 'closed file')} can't get a final name yet: {self._why}"

    def require_few(self) -> None:
        """Refuse to let more files wait for their names: memory and each note have them.

        Raises:
            StorageError: a thousand wait.
        """
        if len(self._unnamed) >= _MOST_UNNAMED:
            raise StorageError(f"{self.trouble}. No event is written until some have theirs")

    def next_at(self) -> float:
        """Return when the next one is tried, in monotonic seconds."""
        return min((one.next_at for one in self._unnamed.values()), default=float("inf"))

    def lengths(self) -> dict[str, int]:
        """Return the files that are yet to get their names, each with its length in bytes."""
        unnamed = self._unnamed.items()
        return {path: one.file.appended.length for path, one in unnamed if one.file.appended is not None}
