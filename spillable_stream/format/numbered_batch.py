"""Batches that producers number, as records hold them."""

from __future__ import annotations

from typing import NamedTuple

from spillable_stream.format.take_record import Ranges

__all__ = ["BY_PRODUCER", "MAX_NOTE_BYTES", "NumberedBatch", "Numbers", "ProducerImage", "ProducerNote", "StoredBatch"]

BY_PRODUCER = 0
"""The fingerprint of a batch whose number the producer chose: it never uses a number for two different batches."""

MAX_NOTE_BYTES = 64 << 10
"""The largest note of a producer's batch."""

StoredBatch = tuple[int, int, int] | tuple[int, int, int, int]
"""A producer's batch: its number, the first and the last ID of its events, and their fingerprint if there is one."""

ProducerImage = tuple[Ranges, int, list[StoredBatch]]
"""What a producer has committed: ranges of numbers, the last number that was forgotten, and its latest batches."""

ProducerNote = tuple[int, bytes]
"""The number of a producer's last batch, and the note that came with it."""


class Numbers(NamedTuple):
    """The sequence numbers that a producer's batch uses.

    Args:
        first: the first of them. The batch also uses up the numbers from here to its own.
        last: the batch's own number.
        fingerprint: if the application chose the number, a fingerprint of the events, 1 to 2^32-1, which tells a
            resent batch from a different one; `BY_PRODUCER` if the producer chose it; None if an earlier version of
            this package wrote it.
    """

    first: int
    last: int
    fingerprint: int | None = None


class NumberedBatch(NamedTuple):
    """The identity of a producer's batch.

    Args:
        producer: the producer's ID.
        numbers: the batch's numbers. With a note their fingerprint is known.
        note: what the producer wants to find again with its last number, at most `MAX_NOTE_BYTES`.
    """

    producer: str
    numbers: Numbers
    note: bytes = b""
