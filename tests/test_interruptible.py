"""Ctrl-C waits for no call that waits outside of Python."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from textwrap import dedent
from typing import ClassVar

import pytest

from spillable_stream import interruptible as module
from spillable_stream.call_threads import POLL_SECONDS
from spillable_stream.interruptible import Begun, begun, interruptible, left_after
from tests.support.forks import in_child
from tests.support.interrupts import Interrupts, interrupt_main
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until

_SECONDS = 60  # of a thread that hangs


def failing(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def result(made: Begun[int]) -> int:
    assert made.ends_within(_SECONDS)
    return made.take()


def test_a_call_returns_and_raises_what_it_does() -> None:
    assert interruptible(lambda: 42) == 42
    with pytest.raises(LookupError, match="of the call") as raised:
        interruptible(failing(LookupError("of the call")))
    assert raised.value.__context__ is None


def test_a_long_wait_is_made_in_short_pieces() -> None:
    """Python handles a signal that comes right before it begins to wait when that wait is over."""

    class Lock:
        pieces: ClassVar[list[float]] = []

        def acquire(self, timeout: float) -> bool:
            self.pieces.append(timeout)
            return False

    made = Begun(lambda: None)
    made._end = Lock()  # type: ignore[assignment]
    assert not made.ends_within(1.1)
    assert sum(Lock.pieces) == pytest.approx(1.1) and max(Lock.pieces) == POLL_SECONDS


def test_ctrl_c_ends_the_wait_for_a_call_which_continues_by_itself() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def call() -> None:
        interrupt_main()
        assert may_end.wait(_SECONDS)
        has_ended.set()

    with pytest.raises(KeyboardInterrupt):
        interruptible(call)
    assert not has_ended.is_set()
    assert interruptible(lambda: 42) == 42, "the next one does not wait for it"
    may_end.set()
    assert has_ended.wait(_SECONDS)


def test_another_thread_than_the_main_one_makes_its_calls_itself() -> None:
    made_in: list[int] = []
    thread = threading.Thread(target=lambda: made_in.append(interruptible(threading.get_ident)))
    thread.start()
    thread.join(_SECONDS)
    assert made_in == [thread.ident]


def test_calls_one_after_the_other_have_the_same_thread() -> None:
    assert len({interruptible(threading.get_ident) for _ in range(10)} - {threading.get_ident()}) == 1


def test_a_call_within_a_call_has_a_thread_of_its_own() -> None:
    assert result(begun(lambda: result(begun(lambda: 42)))) == 42


def test_without_a_thread_a_call_is_made_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_idle", deque())
    with no_threads() as refused:
        assert interruptible(threading.get_ident) == threading.get_ident()
        left_after(0.0, failing(AssertionError()))
    assert refused == ["spillable interruptible"] * 2


def test_an_error_keeps_nothing_of_the_call_when_it_is_forgotten() -> None:
    class Data:
        def fail(self) -> None:
            raise LookupError

    data = Data()
    kept = weakref.ref(data)
    gc.disable()
    try:
        with suppress(LookupError):
            interruptible(data.fail)
        del data
        wait_until(lambda: kept() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_wherever_an_interrupt_comes_no_thread_is_left_and_no_call_is_made_twice(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(module, "_idle", deque())
    before, number, is_hit = set(threading.enumerate()), 0, True
    while is_hit:
        number += 1
        calls: list[int] = []
        interrupts = Interrupts(number, "spillable_stream/interruptible", "spillable_stream/own_thread", error=error)
        interrupts.run(partial(interruptible, partial(calls.append, number)))
        is_hit = interrupts.hit
        assert len(calls) <= 1
    assert number > 10
    wait_until(lambda: len(set(threading.enumerate()) - before) == len(module._idle))
    assert len(module._idle) < 5, "others are taken again"


def test_an_error_of_a_handler_is_not_taken_for_the_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_idle", deque())
    calls: list[int] = []

    def start(_: threading.Thread) -> None:
        raise RuntimeError("of a handler")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="of a handler"):
        interruptible(lambda: calls.append(1))
    assert calls == []


def test_a_forked_child_has_threads_of_its_own() -> None:
    interruptible(lambda: None)
    in_child(lambda: interruptible(lambda: 42) == 42)


def test_what_nobody_needs_is_not_waited_for_long_and_its_error_is_nobodys() -> None:
    may_end, has_ended = threading.Event(), threading.Event()
    left_after(_SECONDS, failing(LookupError()))
    left_after(0.0, lambda: (may_end.wait(_SECONDS), has_ended.set()))
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(_SECONDS)


@pytest.mark.parametrize("has_idle", [True, False])
def test_a_finalizer_at_the_end_of_the_interpreter_makes_its_calls_itself(has_idle: bool) -> None:
    program = f"""
        import os
        from spillable_stream.interruptible import interruptible
        from spillable_stream.objects.parallel import in_parallel

        class Late:
            def __init__(self):
                self.tools = interruptible, in_parallel, os.write

            def __del__(self):
                interruptible, in_parallel, write = self.tools
                write(1, b"%d" % sum([interruptible(lambda: 42), *in_parallel("orders", [lambda: 1, lambda: 2])]))

        {"interruptible(lambda: None)" if has_idle else ""}
        in_parallel("orders", [lambda: None] * 2)
        late = Late()
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=_SECONDS)
    assert (done.stdout, done.stderr, done.returncode) == ("45", "", 0)


def test_a_finalizer_at_the_end_of_the_interpreter_waits_for_no_lock_of_a_thread_that_never_runs_again() -> None:
    """A thread that was about to be idle when the interpreter ended kept its lock, and the process hung."""
    program = """
        import os
        from spillable_stream.call_threads import CallThreads
        from spillable_stream.objects import parallel
        from spillable_stream.own_thread import NoThreadError

        class Late:
            def __init__(self):
                self.tools = parallel.in_parallel, parallel.begin, threads, NoThreadError, os.write

            def __del__(self):
                in_parallel, begin, threads, NoThreadError, write = self.tools
                found = sum([*in_parallel("orders", [lambda: 1, lambda: 2]), begin("orders", lambda: 3).result()])
                try:
                    threads.begin(lambda: None)
                except NoThreadError:
                    write(1, b"%d" % found)

        threads = CallThreads(2, "late")
        requests = parallel._requests("orders")
        for lock in (parallel._mutex, requests._mutex, threads._queue.mutex):
            lock.acquire()
        late = Late()
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=_SECONDS)
    assert (done.stdout, done.stderr, done.returncode) == ("6", "", 0)
