"""Tells whether this process was forked from one that had sent requests to an object store.

The runtime of obstore has threads, which a forked child does not have: its requests would wait forever for them. So a
child of a process that has sent a request is refused at once. It drops nothing of obstore's either: a destructor may
wait for such a thread, too.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from spillable_stream.objects.store import StoreError

__all__ = ["Holder", "begin_requests", "hold_in_children", "is_orphan"]


class Holder(Protocol):
    """Something that has objects of obstore."""

    def held(self) -> object:
        """Return them, as they are now."""


_holders: WeakSet[Holder] = WeakSet()


def hold_in_children(holder: Holder) -> None:
    """Let no forked child drop what is held by something, whatever becomes of that there.

    Args:
        holder: what holds it; it is not kept alive in this process.
    """
    _holders.add(holder)


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


def _keep_for_good(held: list[object]) -> None:
    """Let nothing drop what is held, not even the end of this process's Python, which clears all modules."""
    import ctypes  # here: few processes need it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


def _record_fork() -> None:
    if _State.pid:
        _State.is_orphan = True
        _keep_for_good([holder.held() for holder in _holders])


os.register_at_fork(after_in_child=_record_fork)
