"""Which put of a spool a store has last: the note of the spool's producer (`spillable_stream.format.numbered_batch`).

::

    [transaction, time, checksum]    of the PUT frame in the spool that has the last event that was shipped

An event keeps these three however it is stored in the spool. A copy of the spool that went its own way has another put
under the same write-order ID.
"""

from __future__ import annotations

from typing import NamedTuple

from spillable_stream.format.packing import NONSENSE, nonsense, pack, unpack

__all__ = ["ShippedPut"]


class ShippedPut(NamedTuple):
    """The put that has an event of a spool.

    Args:
        transaction_id: its transaction.
        time_us: when it was committed, in microseconds since 1970.
        payload_crc: the checksum of the payload of the event's frame.
    """

    transaction_id: int
    time_us: int
    payload_crc: int

    def packed(self) -> bytes:
        """Return it as a producer's note."""
        return pack(tuple(self))

    @classmethod
    def parse(cls, note: bytes) -> ShippedPut:
        """Return what a note says.

        Raises:
            CorruptionError: it is not the note of a spool.
        """
        value = unpack(note)
        try:
            return cls(*map(int, value[:3]))
        except NONSENSE as e:
            raise nonsense(cls, e) from e
