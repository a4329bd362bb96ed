"""Which Spark query reads as a group, and which events its first batch had: a small file, or object, beside the group.

::

    value:  [query, run]                                                its first batch is not known
            [query, run, [batch, first ID, last ID, reset], planned?]   its first batch
    planned:  [last ID, transaction]                                    how far the channel was then

    file:   the value as msgpack, sealed (`format/sealed_note.py`); of earlier versions, the query's ID alone

Spark tells only tasks for which query they work. The first task of a batch writes the note, durably, before it returns
an event; so a query whose checkpoint lost its first offset is found out when it begins again
(`spark/source/first_batch.py`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import file_seed
from spillable_stream.format.packing import NONSENSE, pack, unpack
from spillable_stream.format.sealed_note import seal, unseal

__all__ = ["FirstBatch", "HighWater", "QueryNote", "packed", "unpacked"]

HighWater = tuple[int, int]
"""How far a channel was: its last write-order ID, and its next transaction ID, which a lost memory tier turns back."""

_ID_ALONE = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class FirstBatch(NamedTuple):
    """The first batch in which a query has events of a channel.

    Args:
        batch_id: the query's number for it: 0, or a later one where the channel joined a set.
        first_id: the first event that the batch takes.
        last_id: the last one.
        reset: the reset of the group that it begins with; None without one.
    """

    batch_id: int
    first_id: int
    last_id: int
    reset: str | None = None

    def has(self, other: FirstBatch) -> bool:
        """Tell whether a batch is this one, planned again: it may have fewer events, which others took since."""
        is_same = (self.batch_id, self.reset) == (other.batch_id, other.reset)
        return is_same and self.first_id <= other.first_id and other.last_id <= self.last_id


class QueryNote(NamedTuple):
    """The Spark query that reads as a group.

    Args:
        query: its ID, which its checkpoint keeps.
        run: the ID of its run, which each start makes anew; "" where an earlier version wrote the note.
        first: its first batch here; None if that is not known: it is long done, or an earlier version wrote the note.
        planned_at: how far the channel was when that batch was planned; None for a group that the options name.
    """

    query: str
    run: str = ""
    first: FirstBatch | None = None
    planned_at: HighWater | None = None


def packed(note: QueryNote, channel: str, group: str) -> bytes:
    """Return the bytes of a note.

    Args:
        note: the note.
        channel: the channel's UUID.
        group: the group's name.
    """
    value: list[object] = [note.query, note.run]
    if note.first is not None:
        value += [list(note.first)] if note.planned_at is None else [list(note.first), list(note.planned_at)]
    return seal(pack(value), _seed(channel, group))


def unpacked(data: bytes, channel: str, group: str) -> QueryNote | None:
    """Return the note that bytes are; None if they are not whole, or of another group.

    Args:
        data: the bytes.
        channel: the channel's UUID.
        group: the group's name.
    """
    if _ID_ALONE.fullmatch(data):
        return QueryNote(data.decode())
    value = unseal(data, _seed(channel, group))
    if value is None:
        return None
    try:
        query, run, *more = unpack(value)
        if len(more) < 2:
            return QueryNote(query, run, FirstBatch(*more[0]) if more else None)
        last_id, transaction = more[1]
        return QueryNote(query, run, FirstBatch(*more[0]), (last_id, transaction))
    except (*NONSENSE, CorruptionError):  # of a later version
        return None


def _seed(channel: str, group: str) -> int:
    return file_seed(channel, f"query/{group}")
