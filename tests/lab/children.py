"""Children of the test's process that do something and are killed: forks, which start in milliseconds."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.lab import mutants

__all__ = ["Child", "mutate", "wait_until"]


class Child:
    """A fork that does one thing; no thread may hold a lock that it needs.

    Args:
        do: what it does.
        stderr: the file that its complaints go to.
        seconds: how long it may take before it says where it hangs, and ends.
    """

    def __init__(self, do: Callable[[], object], stderr: Path, seconds: float = 600) -> None:
        self.code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            _be(do, stderr, seconds)

    def alive(self) -> bool:
        """Tell whether it still runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is None

    def wait(self) -> int:
        """Wait for its end and return its exit code, that of a signal negated."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

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


def _be(do: Callable[[], object], stderr: Path, seconds: float) -> None:
    """Be the child; never returns."""
    code = 1
    gc.freeze()  # the end of what the parent has left, such as a client of a store, may wait for its threads
    try:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - until the end
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)
        do()
        code = 0
    except BaseException:
        with suppress(Exception):
            traceback.print_exc()
    finally:
        os._exit(code)


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
