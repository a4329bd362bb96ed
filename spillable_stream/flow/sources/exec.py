"""The source ``exec``: the lines that a command prints."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO

from spillable_stream.arguments import path_text
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.charsets import charset_name
from spillable_stream.flow.checked_arguments import Count, Size, checked
from spillable_stream.flow.sources.base import BatchProcessor, EventSource, SourceBase
from spillable_stream.flow.sources.event_columns import event_batch
from spillable_stream.flow.sources.held import put_held, put_unstored
from spillable_stream.flow.sources.lines import split_lines
from spillable_stream.log_records import log_of
from spillable_stream.own_thread import start_thread
from spillable_stream.readiness import has_input
from spillable_stream.shown_value import shown

__all__ = ["Exec"]

_log = log_of("spillable_stream.flow")

_READ_BYTES = 1 << 16  # what a pipe holds
_LONGEST_LINE_BYTES = 16 << 20  # what is longer is cut into several events: a command may never print a line feed
_END_SECONDS = 5.0  # between SIGTERM and SIGKILL


class Exec(EventSource):
    """Runs a command, and puts each line that it prints.

    Where a channel is full, the batch is held and the pipe is not read, so the command waits. The command's whole
    process group ends with the source. It promises nothing beyond that: what the command prints is read once.

    Args:
        command: the command. It is split at white space, and quotes mean nothing, unless there is a shell.
        shell: what runs it, as ``/bin/sh -c``.
        restart: whether it is started again when it has ended.
        restart_throttle: the wait before that, in milliseconds.
        log_std_err: whether what it prints to standard error is logged.
        batch_size: how many lines one transaction has at most.
        batch_timeout: how long a batch waits for more lines, in milliseconds.
        charset: the character set of the lines. It must be one in which a line feed is one byte; bodies stay in it.

    Raises:
        OptionError: the command is empty, or there is no such character set.
    """

    @checked
    def __init__(
        self,
        command: str,
        *,
        shell: str | None = None,
        restart: bool = False,
        restart_throttle: Size = 10_000,
        log_std_err: bool = False,
        batch_size: Count = 20,
        batch_timeout: Size = 3_000,
        charset: str = "UTF-8",
    ) -> None:
        super().__init__()
        self._arguments = [*shlex.split(shell), command] if shell else command.split()
        if not command.split():
            raise OptionError("exec needs a command; give one such as tail -F /var/log/app.log")
        for argument in self._arguments:
            path_text("an argument of the command", argument)  # it may be one
        charset_name(charset)
        self._restart = restart
        self._throttle_seconds = restart_throttle / 1000
        self._log_std_err = log_std_err
        self._batch_size = batch_size
        self._timeout_seconds = batch_timeout / 1000
        self._stopping = threading.Event()
        self._is_cut_off = False
        self._is_command_done = False  # that of the source before this one, which is not run again
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def succeed(self, before: SourceBase, *, is_at_end: bool) -> bool:
        """Take over what the source before could not store; see `SourceBase.succeed`."""
        self.take_unstored(before)
        self._is_command_done = is_at_end
        return True

    def start(self, processor: BatchProcessor) -> None:
        """Start the command, and the thread that reads it; first it puts what the source before could not store.

        Raises:
            OptionError: the command can't be started.
            StorageError: no thread can start, and the command has ended again.
        """
        self._stopping.clear()
        self.finished: bool = False
        self._is_cut_off = False
        if self._is_command_done or self.unstored.events:
            thread = self._thread_of(self._put_first, processor)
            start_thread(thread)
        else:
            process = self._spawn()
            thread = self._thread_of(self._run, processor, process)
            self._start_or_end(thread, process)
        self._thread = thread

    def _thread_of(self, run: Callable[..., None], *arguments: object) -> threading.Thread:
        return threading.Thread(target=run, args=arguments, name=f"{self.name}-exec", daemon=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        errors = subprocess.PIPE if self._log_std_err else subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                self._arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        except OSError as e:
            raise OptionError(
                f"the command {shown(self._arguments[0])} can't be started ({e.strerror}); correct it"
            ) from e
        if self._process.stderr is not None:
            reader = threading.Thread(
                target=self._log_errors, args=(self._process.stderr,), name=f"{self.name}-errors", daemon=True
            )
            self._start_or_end(reader, self._process)
        return self._process

    def _start_or_end(self, thread: threading.Thread, process: subprocess.Popen[bytes]) -> None:
        """Start a thread that reads what a command writes; end the command where that can't be."""
        try:
            start_thread(thread)
        except BaseException:
            self._end_group(process)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            raise

    def _log_errors(self, errors: IO[bytes]) -> None:
        with errors:
            for line in errors:
                _log.of(self.name).info("standard error: %s", line.decode(errors="replace").rstrip("\n"))

    def _put_first(self, processor: BatchProcessor) -> None:
        """Put what the source before this one could not store, and then run the command, unless that has ended.

        Not before: what it prints would be held, too, and more with each start anew, as long as the channel fails.
        """
        is_stored = put_unstored(self, processor, self._stopping)
        self.finished = self._is_command_done
        if (
            is_stored
            and not (self.finished or self._stopping.is_set())
            and (process := self._spawn_later()) is not None
        ):
            self._run(processor, process)

    def _spawn_later(self) -> subprocess.Popen[bytes] | None:
        """Start the command in the thread; None where that can't be."""
        try:
            return self._spawn()
        except (OptionError, StorageError) as e:  # its supervisor starts it again, and says so until that works
            self.miss(str(e))
            _log.of(self.name).error("%s", e)
            return None

    def _run(self, processor: BatchProcessor, process: subprocess.Popen[bytes]) -> None:
        try:
            self._run_commands(processor, process)
        finally:  # whatever ends this thread: nobody else would end the command
            if self._process is not None and self._process.poll() is None:
                self._end_group(self._process)

    def _run_commands(self, processor: BatchProcessor, process: subprocess.Popen[bytes]) -> None:
        while True:
            is_at_end = self._read(processor, process)
            self._say_status(process.wait())
            if not self._restart:
                self.finished = is_at_end
                return
            if self._stopping.wait(self._throttle_seconds):
                return
            if (again := self._spawn_later()) is None:
                return
            process = again

    def _say_status(self, status: int) -> None:
        has_failed = status != 0 and not self._stopping.is_set()
        if has_failed:
            self.miss(f"the command ended with status {status}")
        hint = "; logStdErr = true logs what it says of it" if has_failed and not self._log_std_err else ""
        _log.of(self.name).log(
            logging.WARNING if has_failed else logging.INFO, "the command ended with status %d%s", status, hint
        )

    def _read(self, processor: BatchProcessor, process: subprocess.Popen[bytes]) -> bool:
        """Put the lines of the command until it ends, or the source is stopped; tell whether it ended by itself."""
        assert process.stdout is not None
        held, waits_since, ended, is_stored = b"", 0.0, False, True
        with process.stdout as out:
            while not ended and not self._stopping.is_set():
                left = self._timeout_seconds - (time.monotonic() - waits_since) if held else 0.5
                if has_input(out, min(left, 0.5)):
                    data = os.read(out.fileno(), _READ_BYTES)
                    ended = not data
                    waits_since = waits_since if held else time.monotonic()
                    held = self._cut(held + data)
                is_due = len(held) >= _LONGEST_LINE_BYTES or time.monotonic() - waits_since >= self._timeout_seconds
                held, is_stored = self._put_lines(processor, held, is_stored, everything=is_due)
            if not ended:
                rest, ended = self._rest(out, process)
                held += rest
            elif self._stopping.is_set():
                self._end_group(process)
        held += b"" if held.endswith(b"\n") or not held else b"\n"
        self._put_lines(processor, held, is_stored, everything=True)
        return ended and not self._is_cut_off

    def _rest(self, out: IO[bytes], process: subprocess.Popen[bytes]) -> tuple[bytes, bool]:
        """End the command, and return what it has printed and nobody has read, and whether that is all of it."""
        if process.poll() is None:
            self._cut_off(process)
        rest, ended = _waiting(out)
        if not ended:  # what the command has started continues
            self._cut_off(process)
            rest += _waiting(out)[0]
        return rest, ended

    def _cut(self, data: bytes) -> bytes:
        """Return what was read with an end for a last line that is too long."""
        if len(data) < _LONGEST_LINE_BYTES or len(data) - data.rfind(b"\n") <= _LONGEST_LINE_BYTES:
            return data
        self.counters.event_read_fail += 1
        _log.of(self.name).warning(
            "the command has printed more than %s without a line feed, and they are an event by themselves",
            counted(_LONGEST_LINE_BYTES, "byte"),
        )
        return data + b"\n"

    def _put_lines(
        self, processor: BatchProcessor, data: bytes, is_stored: bool, *, everything: bool
    ) -> tuple[bytes, bool]:
        """Put whole batches of lines; with ``everything`` a smaller batch, too.

        Args:
            processor: where they go.
            data: the lines.
            is_stored: whether those before them are stored; else none is tried, which would hold up the end.
            everything: see above.

        Returns:
            What is left, and whether the rest is stored: not where a channel refuses and the source is being stopped.
        """
        lines = split_lines(data, drop_cr=True)
        count = len(lines.starts) if everything else len(lines.starts) // self._batch_size * self._batch_size
        if not count:
            return data, is_stored
        events = event_batch(lines.bodies.slice(0, count))  # at once: each small batch by itself would cost as much
        for first in range(0, count, self._batch_size):
            batch = events.slice(first, self._batch_size)
            is_stored = put_held(self, processor, batch, self._stopping, is_behind=not is_stored)
        return data[lines.end_of(count) :], is_stored

    def _cut_off(self, process: subprocess.Popen[bytes]) -> None:
        """End the command before its end."""
        self._is_cut_off = True
        self._end_group(process)

    def _end_group(self, process: subprocess.Popen[bytes]) -> None:
        """End the command and all that it has started."""
        for number, wait_seconds in ((signal.SIGTERM, _END_SECONDS), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            try:
                process.wait(wait_seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever ignored the first signal

    def stop(self) -> None:
        """End the command's process group, put what was read, and return."""
        self._stopping.set()
        if self._thread is not None:
            if self._process is not None and self._process.poll() is None:  # the thread may be held up in a channel
                self._cut_off(self._process)
            self._thread.join()
            self._thread = None

    @property
    def alive(self) -> bool:
        """Whether its thread runs; a command that has ended has not failed."""
        return self.finished or (self._thread is not None and self._thread.is_alive())


def _waiting(out: IO[bytes]) -> tuple[bytes, bool]:
    """Return what waits in a pipe, as much as one holds, and whether its end is there."""
    found = b""
    while len(found) <= _READ_BYTES and has_input(out, 0):  # once more behind a full pipe: its end may be there
        data = os.read(out.fileno(), _READ_BYTES)
        if not data:
            return found, True
        found += data
    return found, False
