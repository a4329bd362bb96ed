"""What the channels of a source say of its newest numbered batch."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Noted"]


class Noted(NamedTuple):
    """The newest numbered batch that a source's channels have.

    Args:
        number: its number.
        note: what the source said about it.
        complete: whether all channels that must have a part of it have theirs. If not, it must be put again, under its
            number, before the next one.
    """

    number: int
    note: bytes
    complete: bool
