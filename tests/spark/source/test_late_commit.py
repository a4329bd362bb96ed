"""The clock of a commit that waits for the next append."""

from __future__ import annotations

import threading

import pytest

import spillable_stream as ss
from spillable_stream.spark.source.late_commit import LateCommit
from tests.support.no_threads import no_threads

LONG_SECONDS = 3600.0


def test_a_commit_that_fails_is_logged_and_one_that_was_made_is_not_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, others = list[int](), set(threading.enumerate())  # a query of an earlier test may have one that waits
    tried = threading.Event()

    def commit() -> None:
        made.append(1)
        tried.set()
        raise ss.StorageError("the store is busy")

    late = LateCommit(commit, "/c")
    late.within(LONG_SECONDS)
    late.within(0.0)  # one waits already
    late.cancel()
    assert not made
    late.within(0.0)
    assert tried.wait(30)
    for thread in threading.enumerate():
        if thread.name == "spillable late commit" and thread not in others:
            thread.join(30)
    assert "is not committed yet: the store is busy" in caplog.text


def test_a_commit_for_which_no_thread_can_wait_is_made_at_once_and_the_next_one_waits() -> None:
    made = list[int]()
    late = LateCommit(lambda: made.append(1), "/c")
    with no_threads():
        late.within(LONG_SECONDS)
    assert made == [1]
    late.within(LONG_SECONDS)
    assert made == [1] and late._timer is not None
    late.cancel()
