"""When events expire: what a frame's ttl says of its events, and what that comes to for many frames together."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NEVER", "Expiry", "joined"]


class Expiry(NamedTuple):
    """When some events expire, in microseconds since 1970; or after how many microseconds, as a ttl says it.

    Args:
        first: when the first of them does; 0 if none ever does.
        last: when all of them have; 0 if one of them never does.
    """

    first: int = 0
    last: int = 0

    @classmethod
    def after(cls, ttl_us: int, time_us: int = 0) -> Expiry:
        """Return when the events of one frame expire.

        Args:
            ttl_us: their ttl, in microseconds; 0 for none.
            time_us: when they were committed; 0 for an answer from then on.
        """
        return cls(time_us + ttl_us, time_us + ttl_us) if ttl_us else NEVER

    def since(self, time_us: int) -> Expiry:
        """Return when events expire that were committed at a time, given after how long they do."""
        return Expiry(self.first and self.first + time_us, self.last and self.last + time_us)

    def joined(self, other: Expiry) -> Expiry:
        """Return when these events and others expire."""
        if not self.first or not other.first:
            return Expiry(self.first or other.first)
        return Expiry(min(self.first, other.first), max(self.last, other.last) if self.last and other.last else 0)


NEVER = Expiry()
"""The expiry of events without a ttl."""


def joined(expiry: Expiry | None, other: Expiry) -> Expiry:
    """Return when events expire together with others; None for no events yet."""
    return other if expiry is None else expiry.joined(other)
