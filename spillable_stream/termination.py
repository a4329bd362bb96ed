"""SIGTERM ends a program as an exception does, so that its ``with`` blocks close what they opened."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

__all__ = ["Terminated", "calling_on_sigterm", "exit_on_sigterm", "interrupting_on_sigterm"]


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Whatever handles Ctrl-C handles it, too."""


def exit_on_sigterm() -> AbstractContextManager[None]:
    """Let SIGTERM raise ``SystemExit(143)`` in the main thread while the block runs.

    Without it SIGTERM kills Python at once and no channel is closed: what is in memory stays there,
    for the next that opens the channel, but is lost if the machine restarts. Put it outside of the
    channels, in the main thread::

        with exit_on_sigterm(), Channel(path, memory_capacity=10_000) as channel:
            ...

    A second SIGTERM does not disturb the blocks that the first one ends. The old handler is back
    after the block.

    Raises:
        ValueError: this is not the main thread.
    """
    return _handling(lambda: SystemExit(128 + signal.SIGTERM))


def interrupting_on_sigterm() -> AbstractContextManager[None]:
    """Let SIGTERM raise `Terminated` in the main thread while the block runs, as `exit_on_sigterm` does its exception.

    It is for a program that says where it stands when it is interrupted, whatever the signal.

    Raises:
        ValueError: this is not the main thread.
    """
    return _handling(Terminated)


@contextmanager
def _handling(make: Callable[[], BaseException]) -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> None:
        error = sys.exception()  # what the interrupted code handles now, such as the exit under way
        while error is not None and not isinstance(error, (SystemExit, Terminated)):
            error = error.__context__
        if error is None:
            raise make()

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextmanager
def calling_on_sigterm(call: Callable[[], object]) -> Iterator[None]:
    """Let SIGTERM make a call, and nothing else, while the block runs; the old handler is back after it.

    Outside of the main thread, which alone may do that, SIGTERM does what it did.

    Args:
        call: it interrupts the main thread anywhere, so it must take no lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: call() and None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
