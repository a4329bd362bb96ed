"""The note that a group's owner writes about itself: its process, since when it owns the group, and more.

::

    pid 7 on host since 2026-01-31T09:30:00+00:00, a worker of up to 5 events; calls 5-9
    ├── the ownership: no other has this ──────────┤  ├── what the owner adds ──────────┤

It is text, for people and for the next owner. No commit depends on it (`spillable_stream.engine.group_owners`).
"""

from __future__ import annotations

from datetime import UTC, datetime

from spillable_stream.engine.worker_statuses import WORKER_MARK
from spillable_stream.storage.lock import process_note

__all__ = ["new_note", "note_with", "owner_since", "ownership_in", "said_owner"]


def new_note(more: str) -> str:
    """Return the note of an ownership that begins now, in this process.

    Args:
        more: what the owner adds; "" for nothing.
    """
    return note_with(f"{process_note()} since {datetime.now(UTC).isoformat()}", more)


def note_with(note: str, more: str) -> str:
    """Return the note of the same ownership with another addition.

    Args:
        note: the note.
        more: what the owner adds; "" for nothing.
    """
    return f"{ownership_in(note)}{more and ', '}{more}"


def ownership_in(note: str) -> str:
    """Return the part of a note that no other ownership has: the process and the time."""
    return note.partition(", ")[0]


def owner_since(note: str) -> datetime | None:
    """Return when an owner took its group; None if its note does not say that."""
    try:
        return datetime.fromisoformat(ownership_in(note).rpartition(" since ")[2])
    except ValueError:
        return None


def said_owner(note: str) -> str:
    """Return what messages say of an owner: its process, since when, and whether it is a worker.

    Args:
        note: its note. A worker writes also what the next one has to know.
    """
    before, mark, _ = note.partition(WORKER_MARK)
    return f"{before}a worker" if mark else note.partition("; ")[0]
