"""The rules of the memory tier: what it may hold, and when puts go to disk without waiting for it.

After Flume's SpillableMemoryChannel: ``memoryCapacity``, ``byteCapacity`` with its buffer percentage, and an overflow
that ends when takes have freed ``overflowDeactivationThreshold`` percent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from spillable_stream.format.file_names import DISK, MEMORY, Tier

__all__ = ["MemoryTierInfo", "TierUsage", "choose_tier", "free_percent", "overflow_lasts", "payload_limit"]


class TierUsage(NamedTuple):
    """What a tier holds.

    Args:
        events: how many events.
        payload_bytes: the size of their payloads.
    """

    events: int
    payload_bytes: int

    def is_within(self, limits: TierUsage) -> bool:
        """Tell whether neither is more than in ``limits``."""
        return self.events <= limits.events and self.payload_bytes <= limits.payload_bytes

    def plus(self, other: TierUsage) -> TierUsage:
        """Return both together."""
        if not other.events and not other.payload_bytes:
            return self
        return TierUsage(self.events + other.events, self.payload_bytes + other.payload_bytes)


@dataclass(slots=True)
class MemoryTierInfo:
    """The memory tier as the disk log knows it.

    Args:
        generation: how many memory tiers the channel has had.
        byte_capacity: how many bytes of memory it was given.
        open: whether it may hold anything.
        reserved_id: the last write-order ID that it may use.
        token: what tells it from every other tier that a channel with this identity ever had.
    """

    generation: int = 0
    byte_capacity: int = 0
    open: bool = False
    reserved_id: int = 0
    token: str = ""

    def fields(self) -> tuple[int, int, bool, int, str]:
        """Return it as an image holds it."""
        return self.generation, self.byte_capacity, self.open, self.reserved_id, self.token


def choose_tier(
    wanted: TierUsage, limits: TierUsage, waits: bool, fits_memory: Callable[[], bool]
) -> tuple[Tier | None, str]:
    """Choose the tier of a put transaction, which goes whole to one: memory while it has room, else disk.

    Args:
        wanted: the transaction's events and payloads.
        limits: what the memory tier may hold.
        waits: whether the put may still wait for memory: there is a disk tier, no overflow is active, and
            ``overflowTimeout`` has not passed.
        fits_memory: tells whether memory has room now; asked only about a transaction that fits an empty memory tier.

    Returns:
        The tier, None to wait for memory; and why the put spills to disk: "large", if the transaction fits no memory
        tier, "full", or "" if it does not spill.
    """
    if not wanted.is_within(limits):
        return DISK, "large"
    if fits_memory():
        return MEMORY, ""
    return (None, "") if waits else (DISK, "full")


def payload_limit(byte_capacity: int, buffer_percentage: int) -> int:
    """Return how many bytes of payloads so much memory holds.

    Args:
        byte_capacity: the memory, in bytes.
        buffer_percentage: how much of it is kept for all but payloads.
    """
    return byte_capacity * (100 - buffer_percentage) // 100


def free_percent(held: TierUsage, limits: TierUsage) -> float:
    """Return how much of a tier is free, in events or in bytes, whichever is less; 0 if its limit is 0."""
    return min(100 * (most - h) / most if most else 0.0 for h, most in zip(held, limits, strict=True))


def overflow_lasts(free: float, deactivation_threshold: int) -> bool:
    """Tell whether an overflow lasts after a take.

    Args:
        free: how much of the memory tier is free then, in percent.
        deactivation_threshold: how much ends it, in percent.
    """
    return free < deactivation_threshold
