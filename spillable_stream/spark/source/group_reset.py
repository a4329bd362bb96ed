"""A reset moves a group to where a query with a new checkpoint begins, once: with the query's first batch.

A reset has a name, which the offsets of that batch carry, and which the group has from the moment it is done
(`GroupState.reset`): a batch that Spark plans again finds it there. The name says which reset of the group came before,
so that a first batch in an old copy of a checkpoint does not undo what was done since.
"""

from __future__ import annotations

from uuid import uuid4

from spillable_stream.errors import CheckpointMismatchError

__all__ = ["is_done", "new_reset"]


def new_reset(last: str) -> str:
    """Return the name of a reset.

    Args:
        last: the name of the group's last one, or "".
    """
    return f"{_own(last)}-{uuid4().hex}"


def is_done(reset: str, last: str, group: str, path: str) -> bool:
    """Tell whether a reset was done.

    Args:
        reset: its name.
        last: the name of the group's last one, or "".
        group: the group.
        path: the channel's path, for the message.

    Raises:
        CheckpointMismatchError: another one was done since it was named.
    """
    if reset == last:
        return True
    if reset.rpartition("-")[0] != _own(last):
        raise CheckpointMismatchError(
            f"the Spark checkpoint's first batch begins with a reset of the group {group!r} of {path}, but another "
            "query has reset it since: the checkpoint is an old copy. Use a new checkpointLocation"
        )
    return False


def _own(reset: str) -> str:
    return reset.rpartition("-")[2]
