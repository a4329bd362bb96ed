"""Signals end a program as an exception does, so that its ``with`` blocks close what they opened."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

__all__ = ["Terminated", "calling_on_sigterm", "exit_on_sigterm", "handled", "interrupting_on_signals"]


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP came. Whatever handles Ctrl-C handles it, too.

    Args:
        number: the signal's.
    """

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.number: int = number


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
    return _handling((signal.SIGTERM,), lambda number: SystemExit(128 + number))


@contextmanager
def interrupting_on_signals() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` while the block runs, and SIGTERM and SIGHUP `Terminated`.

    It is for a program that says where it stands when it is interrupted, whatever the signal. A second SIGTERM does not
    disturb the blocks that the first one ends; Ctrl-C does. A signal that is ignored still is: with ``nohup`` the
    program outlives its terminal.

    Raises:
        ValueError: this is not the main thread.
    """
    ctrl_c, others = _heeded(signal.SIGINT), _heeded(signal.SIGTERM, signal.SIGHUP)
    with handled(ctrl_c, signal.default_int_handler), _handling(others, Terminated):
        yield


def _heeded(*numbers: int) -> list[int]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def _handling(numbers: Sequence[int], make: Callable[[int], BaseException]) -> Iterator[None]:
    def end(number: int, _: FrameType | None) -> None:
        error = sys.exception()  # what the interrupted code handles now, such as the exit under way
        while error is not None and not isinstance(error, (SystemExit, Terminated)):
            error = error.__context__
        if error is None:
            raise make(number)

    with handled(numbers, end):
        yield


_calls: list[Callable[[], object]] = []  # of the blocks that run now, in the main thread
_outer: Callable[[int, FrameType | None], object] | int | None = None  # the handler before the first of them


@contextmanager
def calling_on_sigterm(call: Callable[[], object]) -> Iterator[None]:
    """Let SIGTERM make a call, and nothing else, while the block runs; the old handler is back after it.

    Blocks that run at once, as in the tasks of an event loop, may end in any order: SIGTERM makes the calls of all that
    run, and the old handler is back after the last one, and in a forked child. Outside of the main thread, which alone
    may do that, SIGTERM does what it did.

    Args:
        call: it interrupts the main thread anywhere, so it must take no lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _outer
    _calls.append(call)
    try:
        if signal.getsignal(signal.SIGTERM) is not _call_all:
            _outer = signal.signal(signal.SIGTERM, _call_all)
        yield
    finally:
        if call in _calls:  # not in a forked child
            _calls.remove(call)
        if not _calls:
            _restore()


def _call_all(*_: object) -> None:
    for call in list(_calls):
        call()


def _restore() -> None:
    if signal.getsignal(signal.SIGTERM) is _call_all:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if _outer is None else _outer)


def _after_fork_in_child() -> None:
    _calls.clear()  # the parent's
    _restore()


os.register_at_fork(after_in_child=_after_fork_in_child)


@contextmanager
def handled(numbers: Sequence[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle signals while the block runs; the old handlers are back after it.

    Args:
        numbers: the signals' numbers.
        handler: what Python calls with a signal's number, in the main thread.

    Raises:
        ValueError: this is not the main thread.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
