"""Where a sink's dead letters go, each once.

A sink puts them, and then commits its take. After a crash in between the events come again. So each put is a numbered
batch whose note has the IDs of the events: at the next start those count as written that are not committed.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.flow.dead_letters import as_dead_letters
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.flow.pieces import put_in_pieces
from spillable_stream.flow.sinks.written import WrittenEvents, group_token, ranges_of, uncommitted
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.format.packing import MALFORMED, pack, unpack
from spillable_stream.state.ranges import Range

__all__ = ["LetterBox"]

_MOST_RANGES = 3000  # as many as a note has room for, whatever their numbers


class LetterBox:
    """Puts a sink's dead letters into their channel.

    Args:
        dead_letter: this channel.
        sink: the sink's name.
        channel: the channel that the sink takes from.
        group: the group that takes from it.
        written: the events that are written and not committed; gets those of the letters.
    """

    def __init__(self, dead_letter: Channel, sink: str, channel: Channel, group: str, written: WrittenEvents) -> None:
        self._dead_letter, self._sink = dead_letter, sink
        self._channel, self._group = channel, group
        self._producer = f"{sink}.deadLetter"
        self._written = written
        last = dead_letter.last_batch(self._producer)
        self._number = last.sequence
        self._noted = uncommitted(channel, group, *_read_note(last.note, channel.uuid))
        written.add(self._noted)

    def put(self, batch: pa.RecordBatch, ids: pa.Array, reason: str, now_ms: int) -> None:
        """Put events that can't be written; in several transactions where their channel can't hold them in one.

        Args:
            batch: the events.
            ids: their write-order IDs.
            reason: why they can't.
            now_ms: the time, in milliseconds since 1970.

        Raises:
            SpillableError: the channel refused.
        """

        def put(some: pa.RecordBatch, first: int) -> None:
            self._put(some, ids.slice(first, some.num_rows), reason, now_ms)

        put_in_pieces(batch, put)

    def _put(self, batch: pa.RecordBatch, ids: pa.Array, reason: str, now_ms: int) -> None:
        names = ids.cast(pa.string()).to_pylist()
        letters = as_dead_letters(as_event_batch(batch), self._sink, [reason] * len(ids), names, now_ms)
        ranges = ranges_of(ids)
        noted = [*self._written.among(self._noted), *ranges][-_MOST_RANGES:]
        number = self._number + 1
        with self._dead_letter.put_transaction() as transaction:
            token = group_token(self._channel, self._group)
            note = pack({"channel": self._channel.uuid, "ranges": noted, "token": token})
            transaction.producer = NumberedBatch(self._producer, Numbers(number, number, BY_PRODUCER), note)
            transaction.put_batch(letters)
        self._number, self._noted = number, noted
        self._written.add(ranges)


def _read_note(note: bytes, uuid: str) -> tuple[list[Range], str]:
    """Return the IDs in a note about a channel, and the group's token; no IDs of a note about another channel."""
    try:
        found = unpack(note) if note else {}
        if found.get("channel") == uuid:
            return list(_ranges(found["ranges"])), str(found.get("token", ""))
    except MALFORMED:
        pass
    return [], ""


def _ranges(found: Iterable[tuple[int, int]]) -> Iterable[Range]:
    return ((int(first), int(last)) for first, last in found)
