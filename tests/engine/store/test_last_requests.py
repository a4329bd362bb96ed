"""A close waits for what it asks of a store, but not for long."""

from __future__ import annotations

import threading
from collections import deque
from contextvars import ContextVar

import pytest

from spillable_stream import interruptible
from spillable_stream.engine.store import last_requests
from spillable_stream.engine.store.last_requests import LAST_REQUEST_SECONDS, LastRequests
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def test_an_answer_is_waited_for() -> None:
    asked: list[int] = []
    assert LastRequests().are_answered(lambda: asked.append(1))
    assert asked == [1]


def test_what_fails_in_time_is_raised() -> None:
    def fail() -> None:
        raise LookupError("of the store")

    requests = LastRequests()
    with pytest.raises(LookupError, match="of the store"):
        requests.are_answered(fail)
    assert requests.seconds() == LAST_REQUEST_SECONDS


def test_while_the_first_has_no_answer_no_other_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_requests, "LAST_REQUEST_SECONDS", 0.01)
    silence, asked = threading.Event(), list[str]()
    requests = LastRequests()
    assert not requests.are_answered(lambda: (silence.wait(60), asked.append("first")))
    assert requests.seconds() == 0
    monkeypatch.setattr(last_requests, "LAST_REQUEST_SECONDS", 60.0)
    assert not requests.are_answered(lambda: (silence.wait(60), asked.append("second")))
    silence.set()
    wait_until(lambda: sorted(asked) == ["first", "second"])
    wait_until(lambda: requests.seconds() == 60)
    assert requests.are_answered(lambda: None)


def test_it_is_asked_in_the_context_of_the_caller() -> None:
    variable, found = ContextVar[int]("variable"), list[int]()
    variable.set(42)
    assert LastRequests().are_answered(lambda: found.append(variable.get()))
    assert found == [42]


def test_without_a_thread_this_one_asks_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(interruptible, "_idle", deque())
    with no_threads():
        assert LastRequests().are_answered(lambda: asked.append(threading.get_ident()))
    assert asked == [threading.get_ident()]


def test_an_end_waits_in_vain_for_one_thread_at_most() -> None:
    requests, waited = LastRequests(), list[float]()

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    assert not requests.have_ended(wait) and not requests.have_ended(wait)
    assert waited == [LAST_REQUEST_SECONDS, 0]
    assert requests.are_answered(lambda: None), "what is asked meanwhile is waited for"
    assert requests.have_ended(lambda seconds: seconds == 0)
