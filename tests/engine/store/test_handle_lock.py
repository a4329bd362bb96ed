"""What the threads of one handle do to each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.errors import LockTimeoutError, TransactionStateError
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
