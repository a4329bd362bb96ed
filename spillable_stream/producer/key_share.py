"""Which keys come to a channel, as it notes it beside the batches that the application numbers."""

from __future__ import annotations

from typing import NamedTuple, Self

from spillable_stream.counted import counted
from spillable_stream.format.packing import pack, unpack

__all__ = ["KeyShare"]

_MARKER = b"keys:"


class KeyShare(NamedTuple):
    """One channel's share of a producer's keys.

    Args:
        places: its places among the receivers, from 1.
        shards: how many receivers share the keys.
        buckets: the buckets that they share.
        adjusted: whether keys are any text; else they are hashes themselves.
        receivers: what the receivers are known by, in order: UUIDs of channels, and names of others.
    """

    places: tuple[int, ...]
    shards: int
    buckets: int
    adjusted: bool
    receivers: tuple[str, ...]

    @classmethod
    def of_note(cls, note: bytes) -> Self | None:
        """Return the share that a note says; None if it says nothing of any.

        Raises:
            CorruptionError: the note is not msgpack.
        """
        if not note.startswith(_MARKER):
            return None
        places, shards, buckets, adjusted, receivers = unpack(note.removeprefix(_MARKER))[: len(cls._fields)]
        return cls(tuple(places), shards, buckets, adjusted, tuple(receivers))

    def note(self) -> bytes:
        """Return the note that says it."""
        return _MARKER + pack(self)

    def unlike(self, other: KeyShare) -> str:
        """Return in words what it is and another one is not."""
        if self[:4] == other[:4]:
            return f"one of {', '.join(self.receivers)}"
        places = " and ".join(map(str, self.places))
        by = counted(self.buckets, "bucket") + ("" if self.adjusted else " of hashes")
        return f"channel {places} of {self.shards} by {by}"
