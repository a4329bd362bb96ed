"""What a channel says of a producer's last batch."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LastBatch"]


class LastBatch(NamedTuple):
    """A producer's last numbered batch in a channel.

    Args:
        sequence: its number; 0 if there is none.
        note: what the producer stored with it; b"" if it stored nothing.
    """

    sequence: int
    note: bytes
