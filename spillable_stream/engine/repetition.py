"""Commits a request again after a pause that hid whether it is in the log, where that does no harm."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.requests import Request
from spillable_stream.errors import ChannelFullError, CommitOutcomeUnknownError

__all__ = ["MOST_REPEATS", "commit_again"]

MOST_REPEATS = 4
"""How often a commit whose outcome nobody can tell is repeated, where that does no harm."""


def commit_again(
    request: Request,
    unknown: CommitOutcomeUnknownError,
    repeats_left: int,
    commit: Callable[[int], CommitResult],
    untold_loss: AbstractContextManager[None, bool | None],
) -> CommitResult:
    """Commit a request again after a pause that hid its outcome, and return what it got.

    Args:
        request: what to do.
        unknown: what became of it the last time.
        repeats_left: how often it may be repeated.
        commit: commits it, given how often it may be repeated after that.
        untold_loss: the log's block in which a loss waits for the next call: this one raises the unknown outcome.

    Raises:
        ChannelFullError: it is a put for which there is no room; it was looked for, and is not there.
        CommitOutcomeUnknownError: it may not be repeated. Or it was, and failed: such a failure says of the last
            attempt that nothing was committed, which may not be true of the first.
    """
    if not (repeats_left and unknown.is_lasting and request.may_repeat()):
        raise unknown
    try:
        with untold_loss:
            return commit(repeats_left - 1)
    except (ChannelFullError, CommitOutcomeUnknownError):
        raise
    except Exception as e:
        raise unknown from e
    raise unknown
