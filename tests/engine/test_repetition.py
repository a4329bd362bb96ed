"""What a commit that is done again says of itself where the last attempt fails."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.repetition import MOST_REPEATS, commit_again
from spillable_stream.engine.requests import Request
from spillable_stream.engine.store.untold_loss import UntoldLoss
from spillable_stream.errors import (
    ChannelFullError,
    CommitOutcomeUnknownError,
    GroupOwnedError,
    LockTimeoutError,
    ProducerSequenceError,
    SpillableError,
    StorageError,
    UnsafeStoreError,
)
from spillable_stream.objects.location import Location


@dataclass
class Asked(Request):
    may: bool = True

    def may_repeat(self) -> bool:
        return self.may


def unknown(*, is_lasting: bool = True) -> CommitOutcomeUnknownError:
    error = CommitOutcomeUnknownError("whether slot 7 counts is not known")
    error.is_lasting = is_lasting
    return error


def never(repeats_left: int) -> CommitResult:
    pytest.fail("it was done again")


def test_what_may_be_done_twice_is_done_again_and_its_second_result_counts() -> None:
    left = list[int]()

    def commit(repeats_left: int) -> CommitResult:
        left.append(repeats_left)
        return CommitResult(5)

    assert commit_again(Asked(), unknown(), MOST_REPEATS, commit, nullcontext()).transaction_id == 5
    assert left == [MOST_REPEATS - 1]


@pytest.mark.parametrize(
    ("request_", "error", "repeats_left"),
    [(Asked(may=False), unknown(), 1), (Asked(), unknown(is_lasting=False), 1), (Asked(), unknown(), 0)],
    ids=["it does harm", "the next commit settles it", "it was repeated often enough"],
)
def test_what_is_not_repeated_stays_unknown(
    request_: Request, error: CommitOutcomeUnknownError, repeats_left: int
) -> None:
    with pytest.raises(CommitOutcomeUnknownError) as raised:
        commit_again(request_, error, repeats_left, never, nullcontext())
    assert raised.value is error


@pytest.mark.parametrize(
    "failure",
    [
        StorageError("refused; nothing was committed"),
        GroupOwnedError("this handle owns the group no more", "another"),
        ProducerSequenceError("nothing was stored: cut it anew"),
        LockTimeoutError("another thread commits"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_repetition_that_fails_does_not_say_that_nothing_was_committed(failure: SpillableError) -> None:
    """The first attempt may be in the log."""
    first = unknown()

    def commit(repeats_left: int) -> CommitResult:
        raise failure

    with pytest.raises(CommitOutcomeUnknownError) as raised:
        commit_again(Asked(), first, 1, commit, nullcontext())
    assert raised.value is first
    assert raised.value.__cause__ is failure


def test_a_put_that_was_looked_for_and_has_no_room_is_not_there() -> None:
    def commit(repeats_left: int) -> CommitResult:
        raise ChannelFullError("no room")

    with pytest.raises(ChannelFullError):
        commit_again(Asked(), unknown(), 1, commit, nullcontext())


def test_a_repetition_whose_outcome_is_unknown_too_raises_its_own_error() -> None:
    second = unknown()

    def commit(repeats_left: int) -> CommitResult:
        raise second

    with pytest.raises(CommitOutcomeUnknownError) as raised:
        commit_again(Asked(), unknown(), 1, commit, nullcontext())
    assert raised.value is second


def test_a_loss_that_ends_a_repetition_waits_for_the_next_call() -> None:
    first, untold = unknown(), UntoldLoss(Location("s3", "bucket", "orders"))

    def commit(repeats_left: int) -> CommitResult:
        raise UnsafeStoreError("lost")

    with pytest.raises(CommitOutcomeUnknownError) as raised:
        commit_again(Asked(), first, 1, commit, untold.block())
    assert raised.value is first
    with pytest.raises(UnsafeStoreError, match=r"^lost$"):
        untold.tell()


def test_a_loss_that_waits_does_not_end_a_repetition() -> None:
    untold = UntoldLoss(Location("s3", "bucket", "orders"))
    with untold.block():
        raise UnsafeStoreError("lost")

    def commit(repeats_left: int) -> CommitResult:
        untold.tell()
        return CommitResult(5)

    assert commit_again(Asked(), unknown(), 1, commit, untold.block()).transaction_id == 5
    assert untold.waiting is not None
