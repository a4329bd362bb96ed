"""What a worker and its threads share."""

from __future__ import annotations

from spillable_stream.workers.shared_state import SharedState
from spillable_stream.workers.work import Work
from tests.support.workers import Clock


def test_the_first_failure_is_why_a_worker_ends() -> None:
    shared, first = SharedState("g", Clock()), ValueError("first")
    shared.fail(first)
    shared.fail(KeyError("second"))
    assert shared.error is first and shared.is_stopping


def test_it_is_over_once_nothing_waits_for_a_worker_that_runs_until_then() -> None:
    shared = SharedState("g", Clock())
    assert not shared.is_over()
    shared.until_empty = True
    assert shared.is_over()
    shared.queue.put(Work([(1, 1)]), 5.0)
    assert not shared.is_over()
