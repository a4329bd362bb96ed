"""Ctrl-C waits for no call that waits outside of Python."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest

from spillable_stream.objects import interruptible as module
from spillable_stream.objects.interruptible import begun, interruptible, left_after
from tests.support.forks import in_child
from tests.support.interrupts import interrupt_main
from tests.support.no_threads import no_threads

_SECONDS = 60  # of a thread that hangs


def failing(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def test_a_call_returns_and_raises_what_it_does() -> None:
    assert interruptible(lambda: 42) == 42
    with pytest.raises(LookupError, match="of the call") as raised:
        interruptible(failing(LookupError("of the call")))
    assert raised.value.__context__ is None


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
    assert begun(lambda: begun(lambda: 42).result(_SECONDS)).result(_SECONDS) == 42


def test_without_a_thread_a_call_is_made_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_idle", deque())
    with no_threads() as refused:
        assert interruptible(threading.get_ident) == threading.get_ident()
        left_after(0.0, failing(AssertionError()))
    assert refused == ["spillable interruptible"] * 2


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
