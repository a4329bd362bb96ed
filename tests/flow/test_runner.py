"""A runner waits longer and longer, and its thread ends when it is asked to."""

from __future__ import annotations

import threading

from spillable_stream.flow.runner import Backoff, RoundsThread


def test_waits_grow_and_begin_again() -> None:
    backoff = Backoff(500, 1200)
    assert [backoff.nothing() for _ in range(4)] == [0.5, 1.0, 1.2, 1.2]
    backoff.ready()
    assert backoff.nothing() == 0.5


def test_a_thread_ends_in_time_or_says_that_it_did_not() -> None:
    thread, held = RoundsThread("x"), threading.Event()
    assert not thread.alive and RoundsThread("y").end(0)

    def hold() -> None:
        held.wait(30)

    thread.begin(lambda: None, hold)
    assert thread.alive and not thread.end(0.01) and thread.stopping.is_set()
    held.set()
    assert thread.end(30) and not thread.alive
