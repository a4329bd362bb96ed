"""Children of the test's process that do something and are killed: forks, which start in milliseconds."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.lab import mutants

__all__ = ["Child", "mutate", "wait_until"]

_MARGIN_SECONDS = 60.0  # in which a child that may not run any longer says where it hangs, on a busy machine
_PR_SET_PDEATHSIG = 1
_ends_at: float | None = None  # for a child
_libc = ctypes.CDLL(None, use_errno=True)  # looked up before any fork


class Child:
    """A fork that does one thing, and ends with the process that created it; no thread may hold a lock that it needs.

    Args:
        do: what it does.
        stderr: the file that its complaints go to.
        seconds: how long it may take before it says where it hangs, and ends.
    """

    def __init__(self, do: Callable[[], object], stderr: Path, seconds: float = 600) -> None:
        self.code: int | None = None
        self._seconds = seconds
        parent = os.getpid()
        faulthandler.cancel_dump_traceback_later()  # its lock would never be free in the fork
        self.pid = os.fork()
        if not self.pid:
            _be(do, stderr, seconds, parent)
        _watch()

    def alive(self) -> bool:
        """Tell whether it still runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is None

    def wait(self) -> int:
        """Wait for its end and return its exit code, that of a signal negated.

        It is killed if even its watchdog hangs, as that of a child that is stopped.
        """
        if self.code is None:
            hangs = not self._ends_within(self._seconds + _MARGIN_SECONDS)
            if hangs:
                os.kill(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            assert not hangs, f"a child hung, and its watchdog with it: it may run for {self._seconds:g} s"
        return self.code

    def _ends_within(self, seconds: float) -> bool:
        handle = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        finally:
            os.close(handle)

    def wait_stopped(self) -> bool:
        """Wait until it is stopped, and tell whether it did; else it has ended."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def stop(self) -> None:
        """Stop it until `go_on`, wherever it is; it must be alive."""
        os.kill(self.pid, signal.SIGSTOP)
        assert self.wait_stopped(), f"it ended before, with {self.code}"

    def go_on(self) -> None:
        """Let it go on after `stop`."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> bool:
        """Kill it as nothing can prevent, and tell whether it was alive until then."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait() == -signal.SIGKILL

    def killed_itself(self) -> bool:
        """Wait for its end and tell whether that was SIGKILL, by its own hand."""
        return self.wait() == -signal.SIGKILL

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _be(do: Callable[[], object], stderr: Path, seconds: float, parent: int) -> None:
    """Be the child; never returns.

    It must not outlive its parent: it holds its pipes, whose readers wait for their end.
    """
    global _ends_at
    code = 1
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(code)
    gc.freeze()  # the end of what the parent has left, such as a client of a store, may wait for its threads
    try:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - until the end
        _ends_at = time.monotonic() + seconds
        _watch()
        do()
        code = 0
    except BaseException:
        with suppress(Exception):
            traceback.print_exc()
    finally:
        os._exit(code)


def _watch() -> None:
    """Let this process, if it is a child, say where it hangs, and end, when its time is over."""
    if _ends_at is not None:
        faulthandler.dump_traceback_later(max(_ends_at - time.monotonic(), 0.001), exit=True, file=2)


def mutate(mutant: str) -> None:
    """Break the package in this process, in one of the ways that the laboratory must notice; not if it is empty."""
    if mutant:
        mutants.apply(mutant)


def wait_until(ready: Callable[[], bool], seconds: float = 120) -> bool:
    """Wait until something is so, and tell whether it is."""
    deadline = time.monotonic() + seconds
    while not (found := ready()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return found
