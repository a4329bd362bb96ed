"""Tells whether this process was forked from one that had sent requests to an object store.

The runtime of obstore has threads, which a forked child does not have: its requests would wait forever for them. So a
child of a process that has sent a request is refused at once.
"""

from __future__ import annotations

import os

from spillable_stream.objects.store import StoreError

__all__ = ["begin_requests", "is_orphan"]


class _State:
    """The state of this process.

    Attributes:
        pid: the process that sent the first request; 0 before there was one.
        is_orphan: whether a process above this one did.
    """

    pid = 0
    is_orphan = False


def is_orphan() -> bool:
    """Tell whether this process inherited a runtime whose threads it lacks."""
    return _State.is_orphan or _State.pid not in (0, os.getpid())


def begin_requests(root: object) -> None:
    """Let this process send requests; call it before each.

    Args:
        root: the store, as the message shows it.

    Raises:
        StoreError: its parent has sent requests, so it can't.
    """
    if is_orphan():
        raise StoreError(
            f"this process can't use {root}: it was forked after its parent had used an object store; start it by "
            "'spawn' or 'forkserver', or fork before the first use",
            may_have_happened=False,
            is_lasting=True,
        )
    if not _State.pid:
        _State.pid = os.getpid()


def _record_fork() -> None:
    if _State.pid:
        _State.is_orphan = True


os.register_at_fork(after_in_child=_record_fork)
