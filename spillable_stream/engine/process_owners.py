"""The owners of groups that are handles of this process: a thread that waits for one of them may wait for itself.

An owner's note names its process and the time (`Ownership.note`), which no other ownership of the process has.
"""

from __future__ import annotations

import gc
import threading
import weakref

from spillable_stream.engine.owner_note import ownership_in, said_owner
from spillable_stream.engine.worker_statuses import WORKER_MARK
from spillable_stream.errors import GroupOwnedError
from spillable_stream.storage.lock import process_note

__all__ = ["ProcessOwner", "is_nobodys", "is_of_this_process", "refusal_here", "timeout_for"]


class ProcessOwner:
    """A handle of this process that owns a group, while the object is alive and not closed.

    Args:
        note: what the owner wrote about itself.
    """

    def __init__(self, note: str) -> None:
        self.thread: threading.Thread = threading.current_thread()  # its ident may be another one's when it has ended
        self._key = ownership_in(note)
        _owners[self._key] = self

    def close(self) -> None:
        """Forget it: it gave the group up."""
        _owners.pop(self._key, None)


_owners: weakref.WeakValueDictionary[str, ProcessOwner] = weakref.WeakValueDictionary()


def is_of_this_process(note: str) -> bool:
    """Tell whether this process wrote a note, and is not the child of the one that did."""
    return note.startswith(f"{process_note()} ")


def _found(note: str) -> ProcessOwner | None:
    return _owners.get(ownership_in(note)) if is_of_this_process(note) else None


def is_nobodys(note: str) -> bool:
    """Tell whether no handle of this process has the ownership of this note: an interrupt came amid its begin or end.

    Args:
        note: what an owner wrote about itself that is this process for sure.
    """
    return _owners.get(ownership_in(note)) is None


def timeout_for(note: str, timeout_seconds: float) -> float:
    """Return how many seconds to wait for an owner: 0 if the calling thread itself would have to close it.

    A handle that nobody has any more, and nobody closed, gives its group up when its garbage is collected: that is now.

    Args:
        note: what the owner wrote about itself.
        timeout_seconds: how long to wait for any other one.
    """
    if not _is_of_this_thread(note):
        return timeout_seconds
    gc.collect()
    return 0.0 if _is_of_this_thread(note) else timeout_seconds


def _is_of_this_thread(note: str) -> bool:
    found = _found(note)
    return found is not None and found.thread is threading.current_thread()


def refusal_here(group: str, path: object, note: str, otherwise: str) -> GroupOwnedError | None:
    """Return the error about an owner that is a handle of this process; None if it is elsewhere.

    Args:
        group: the group's name.
        path: the channel.
        note: what the owner wrote about itself.
        otherwise: what else a user may do about an owner that is not a worker.
    """
    found = _found(note)
    if found is None:
        return None
    does = f"took with another handle of the channel. Close that handle first{otherwise}"
    if WORKER_MARK in note:  # of any handle, also of the one that asks
        does = "runs it. Stop it first"
    return GroupOwnedError(
        f"the group {group!r} of {path} is owned by {said_owner(note)}, which is this process: the thread "
        f"{found.thread.name!r} {does}",
        note,
    )
