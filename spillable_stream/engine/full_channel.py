"""What a put that finds no room is told: how full the channel is, who holds events back, and what to do."""

from __future__ import annotations

import time
from heapq import nlargest

from spillable_stream.counted import counted
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.group_owners import GroupOwners
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.ownerless_groups import ownerless_groups
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.tier_ports import MemoryPort
from spillable_stream.errors import ChannelFullError
from spillable_stream.event_age import age_seconds
from spillable_stream.option_names import named
from spillable_stream.state.channel_state import ChannelState

__all__ = ["FullChannel"]

_NAMED_GROUPS = 20
_NAMED_UNREAD = 3


class FullChannel:
    """A channel without room for a put.

    Args:
        path: what users call the channel.
        follower: its state.
        memory: its memory tier.
        owners: the owners of its groups.
    """

    def __init__(self, path: ChannelPath, follower: Follower, memory: MemoryPort, owners: GroupOwners) -> None:
        self._path = path
        self._follower = follower
        self._memory = memory
        self._owners = owners

    def require_time(self, error: ChannelFullError, request: Put, began: float, full_at: float) -> None:
        """Refuse a put that never finds room, or has waited for long enough.

        Args:
            error: why it found none now.
            request: the put.
            began: since when it has waited, in seconds of the monotonic clock.
            full_at: until when it may wait, likewise.

        Raises:
            PutTooLargeError: there would be no room in the empty channel.
            ChannelFullError: the time is over.
        """
        if (too_large := request.too_large(self._follower.state, self._path)) is not None:
            raise too_large from None
        if time.monotonic() >= full_at:
            raise self._refusal(error, request, time.monotonic() - began) from None

    def _refusal(self, error: ChannelFullError, request: Put, waited_seconds: float) -> ChannelFullError:
        with self._follower.as_known as state:  # what the refusal was planned on, or later
            held, option = _held(state), _option_to_raise(state, request)
            rates, age = self._follower.samples.rates(state), age_seconds(state.put_at_us(state.floor))
            lags, unread = _lags(state), self._unread(state)
            has_disk = state.options.overflow_capacity > 0
        if not has_disk and (why := self._memory.why_not()) is not None:
            return ChannelFullError(
                f"{self._path}: {error}: there is no memory tier ({why}), and {named('overflowCapacity')} is 0. It is "
                f"tried again within a minute; to continue before that, set {named('memoryDir')}, or raise "
                f"{named('overflowCapacity')}"
            )
        old = "unknown" if age is None else f"{age:,.0f} s"
        return ChannelFullError(
            f"{self._path}: {error}; {held}. Waited {waited_seconds:.2f} s; in the last {rates.seconds:,.0f} s "
            f"{rates.put:,.0f} events/s were put and {rates.taken:,.0f} taken; the oldest event's age is {old}; "
            f"{lags}. {unread}To continue, take events, or raise {named(option)}"
        )

    def _unread(self, state: ChannelState) -> str:
        """Return which groups hold events back that nobody reads, and what to do about it."""
        found = [group for group in ownerless_groups(self._owners, state) if group.lag]
        if not found:
            return ""
        first = " and ".join(f"{group.name!r} ({group.lag:,} to take)" for group in found[:_NAMED_UNREAD])
        more = f", and {len(found) - _NAMED_UNREAD:,} more like it" if len(found) > _NAMED_UNREAD else ""
        return (
            f"Nobody reads as {first}{more}, created by a stream without a group of its own: unless the stream will be "
            f"started again, drop it with Channel.drop_group({found[0].name!r}). "
        )


def _held(state: ChannelState) -> str:
    """Return how full each tier is."""
    options, limits = state.options, state.memory_limits()
    memory, disk = state.use(in_memory=True), state.use(in_memory=False)
    held = f"disk holds {disk.events:,} of {named('overflowCapacity')} {counted(options.overflow_capacity, 'event')}"
    if state.delays.events:
        held += f" ({state.delays.events:,} of them wait until they are due)"
    if not options.memory_capacity:
        return held
    return (
        f"memory holds {memory.events:,} of {named('memoryCapacity')} {counted(limits.events, 'event')} and "
        f"{memory.payload_bytes:,} of {limits.payload_bytes:,} bytes ({named('byteCapacity')} less its buffer), {held}"
    )


def _option_to_raise(state: ChannelState, request: Put) -> str:
    """Return the option that limits the tier in which the put found no room."""
    if state.options.overflow_capacity:
        return "overflowCapacity"
    events = state.use(in_memory=True).events + request.use.events
    return "memoryCapacity" if events > state.memory_limits().events else "byteCapacity"


def _lags(state: ChannelState) -> str:
    """Return how much each group has yet to take; of many groups, those that have most."""
    lags = {name: state.lag(name) for name in state.groups}
    shown = list(lags) if len(lags) <= _NAMED_GROUPS else nlargest(_NAMED_GROUPS, lags, key=lags.__getitem__)
    more = f", and {len(lags) - len(shown):,} other groups" if len(lags) > len(shown) else ""
    return ", ".join(f"{name} has {lags[name]:,} to take" for name in shown) + more or "there is no group"
