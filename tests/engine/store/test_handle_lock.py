"""What the threads of one handle do to each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine.store.handle_lock import HandleLock
from spillable_stream.errors import LockTimeoutError, TransactionStateError
from spillable_stream.objects.location import Location
from tests.support.object_channels import in_thread, log_of

Open = Callable[..., Channel]


def test_a_thread_that_commits_cannot_begin_another_commit(open_handle: Open) -> None:
    log = log_of(open_handle())
    with log.hold(1), pytest.raises(TransactionStateError, match=r"commits to .* already"), log.hold(1):
        pass
    with log.hold(1):
        pass


def test_a_thread_waits_no_longer_than_it_may_for_another_ones_commit(open_handle: Open) -> None:
    log, errors = log_of(open_handle()), list[Exception]()

    def commit() -> None:
        try:
            with log.hold(0):
                pass
        except LockTimeoutError as e:
            errors.append(e)

    with log.hold(1):
        in_thread(commit).join()
    assert "has been committing to s3://bucket/orders" in str(errors[0])


def test_an_end_that_waits_for_the_commits_of_others_is_told_whether_they_are_over() -> None:
    lock, found = HandleLock(Location("s3", "bucket", "orders"), 60), list[bool]()
    with lock.held(1):
        assert lock.wait(0), "its own keeps no thread waiting"
        in_thread(lambda: found.append(lock.wait(0))).join()
    assert found == [False] and lock.wait(0)
