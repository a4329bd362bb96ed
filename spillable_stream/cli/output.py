"""Standard output: a verb's result. A loss of it is said, and has a status.

Whatever a library does with an error of a write, such as ending with a status of its own, `watch_output` remembers it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from typing import Any, TextIO

import typer

__all__ = [
    "UNREAD",
    "UNWRITTEN",
    "forget_output",
    "is_output_lost",
    "mark_output",
    "say",
    "status_of_output",
    "sync_output",
    "system_error",
    "untaken_output",
    "watch_output",
    "write_lines",
]

UNREAD: int = 128 + signal.SIGPIPE
"""The exit status where nobody reads the output any more, as in ``spillable stats … | head -1``: that of SIGPIPE."""

UNWRITTEN: int = os.EX_IOERR
"""The exit status where standard output can't be written, as on a full disk: 74, the word of sysexits.h for it."""


class _Output(BufferedWriter):
    """Writes to standard output, and remembers the first error.

    The error is remembered above the buffer of C: a signal between a write of the system and its note would write the
    bytes twice.

    Args:
        descriptor: where it writes.
        is_unbuffered: whether each write is written at once, as ``python -u`` has it.

    Attributes:
        error: the first error; None so far.
        is_told: whether it was said.
    """

    def __init__(self, descriptor: int, is_unbuffered: bool) -> None:
        super().__init__(FileIO(descriptor, "wb", closefd=False))
        self._is_unbuffered = is_unbuffered
        self.error: OSError | None = None
        self.is_told: bool = False
        self.mark()

    def mark(self) -> None:
        """Let `since_mark` count from here on."""
        self._marked_end, self._accepted, self._is_used = self._end(), 0, False

    def write(self, data: Any, /) -> int:
        self._is_used = True
        try:
            written = super().write(data)
            self._accepted += written
            if self._is_unbuffered:
                super().flush()
            return written
        except OSError as e:
            self.error = self.error or e
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as e:
            self.error = self.error or e
            raise

    def sync(self) -> None:
        """Write what is buffered; into a file, so that it outlives the host."""
        self.flush()
        if not self._is_file():
            return
        try:
            os.fsync(self.fileno())
        except OSError as e:
            self.error = self.error or e
            raise

    def since_mark(self) -> tuple[int, int, bool]:
        """Return what a file has since `mark`, if this has written since.

        Returns:
            The first byte, how many bytes there are from it on, and whether it is certain that this wrote them all.
        """
        count = self._end() - self._marked_end if self._is_used else 0
        if not count:
            return self._marked_end, 0, True
        buffered = self.tell() - self.raw.tell()
        return self._marked_end, count, count == self._accepted - buffered

    def _is_file(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)

    def _end(self) -> int:
        """Return how much of a file is written; 0 of what is none."""
        if not self._is_file():
            return 0
        if fcntl.fcntl(self.fileno(), fcntl.F_GETFL) & os.O_APPEND:
            return os.fstat(self.fileno()).st_size
        return os.lseek(self.fileno(), 0, os.SEEK_CUR)


_output: _Output | None = None


def watch_output() -> None:
    """Remember from now on whether all of standard output is written."""
    global _output
    _output = None  # of a verb before it in this process
    before = sys.stdout
    if not isinstance(before, TextIOWrapper):
        return
    before.flush()
    try:
        _output = _Output(before.fileno(), before.write_through)
    except UnsupportedOperation:  # it is not a file
        return
    sys.stdout = TextIOWrapper(  # a path may have letters that the locale lacks; standard error copes
        _output,
        before.encoding,
        "replace",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def is_output_lost() -> bool:
    """Tell whether a part of standard output could not be written."""
    return _output is not None and _output.error is not None


def status_of_output(stands: str = "") -> int | None:
    """Return the status that ends a verb whose output can't be written, and say why; None if all of it is written.

    Where nobody reads it any more, only where the work stands is said, if that is given: the reader knows.

    Args:
        stands: where the work stands, in words.
    """
    if _output is None:
        return None
    with suppress(OSError):
        sys.stdout.flush()
    if (error := _output.error) is None:
        return None
    forget_output()
    is_unread = isinstance(error, BrokenPipeError)
    said = "" if is_unread else f"standard output can't be written: {system_error(error)}; send it elsewhere"
    if stands:
        said = f"{said or 'nobody reads the output any more'}: {stands}"
    if said and (stands or not _output.is_told):
        _output.is_told = True
        with suppress(OSError):
            say(said)
    return UNREAD if is_unread else UNWRITTEN


def write_lines(lines: Iterable[bytes]) -> None:
    """Write lines to standard output, all of them, before it returns."""
    out = sys.stdout.buffer
    for line in lines:
        out.write(line + b"\n")
    out.flush()


def sync_output() -> None:
    """Write all that was printed; into a file, so that it outlives the host."""
    if _output is not None:
        _output.sync()


def mark_output() -> None:
    """Note that all that was printed is taken; it is written by now."""
    if _output is not None:
        _output.mark()


def untaken_output(is_known: bool = True) -> str:
    """Say what a file has that was printed since `mark_output`, and what removes it; "" if it has nothing.

    Where others have written to the file, nothing can remove that alone.

    Args:
        is_known: whether it is known that it is not taken.
    """
    if _output is None:
        return ""
    with suppress(OSError):
        sys.stdout.flush()
    start, count, is_all_own = _output.since_mark()
    if not count:
        return ""
    found = f"what the file has from byte {start:,} on"
    if not is_known:
        return f"; it is not known whether {found} is taken"
    if not is_all_own:
        return f"; some of {found} may not be taken"
    return f"; {found} is not taken: 'truncate -s {start}' removes it"


def forget_output(*streams: TextIO) -> None:
    """Let nothing more be written where it is closed or full: Python would try again as it ends.

    Args:
        streams: standard output, or both; standard output by default.
    """
    for stream in streams or (sys.stdout,):
        with suppress(OSError, ValueError, AttributeError):  # it may not be a file, or there may be none
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str) -> None:
    """Say something to people: on standard error, so that standard output is the verb's result."""
    typer.echo(text, err=True)


def system_error(error: OSError) -> str:
    """Return what the system refused, and to what, as a sentence."""
    if error.strerror is None:
        return str(error)
    what = f"{error.filename}: " if error.filename is not None else ""
    return f"{what}{error.strerror} (errno {error.errno})"
