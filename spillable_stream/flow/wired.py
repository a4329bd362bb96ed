"""What an agent runs, by name: its channels with what their sinks share, and the runners of sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from spillable_stream.channel.channel import Channel
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.source_runners import EventRunner, PolledRunner
from spillable_stream.flow.surroundings import REAL

__all__ = ["Place", "Places", "Wired", "place_of"]

_AS_THEY_COME = EventTimes()
_T = TypeVar("_T")


class Place(NamedTuple):
    """A channel of an agent.

    Args:
        channel: the open channel.
        written: what its sinks have written and not committed.
        start_time_ms: since when the agent has it, in milliseconds since 1970.
        times: the times of events that come into it.
    """

    channel: Channel
    written: WrittenEvents
    start_time_ms: int
    times: EventTimes

    @property
    def of_sinks(self) -> tuple[Channel, WrittenEvents]:
        """What its sinks share."""
        return self.channel, self.written

    def lag_events(self) -> int:
        """Return how many events of the channel, and of the spool in front of it, its sinks have not committed.

        Raises:
            SpillableError: the channel can't say.
        """
        stats = self.channel.stats()
        group = stats.groups.get("default")
        unshipped = 0 if stats.spool is None else stats.spool.events
        return unshipped + (stats.channel_size if group is None else group.lag)


Places = Mapping[str, Place]
"""The open channels of an agent by name."""


def place_of(channel: Channel, times: EventTimes = _AS_THEY_COME) -> Place:
    """Return an open channel as that of an agent, from now on.

    Args:
        channel: the channel.
        times: the times of events that come into it.
    """
    return Place(channel, WrittenEvents(), REAL.now_ms(), times)


class Wired(NamedTuple):
    """What an agent runs, by name.

    Args:
        places: the channels.
        sources: the runners of sources.
        sinks: the runners of sinks and of groups of sinks.
    """

    places: Mapping[str, Place] = {}
    sources: Mapping[str, PolledRunner | EventRunner] = {}
    sinks: Mapping[str, SinkRunner] = {}

    def without(self, other: Wired) -> Wired:
        """Return what of this is not the same thing in another one."""
        return Wired(
            _without(self.places, other.places),
            _without(self.sources, other.sources),
            _without(self.sinks, other.sinks),
        )


def _without(of: Mapping[str, _T], other: Mapping[str, _T]) -> dict[str, _T]:
    return {name: value for name, value in of.items() if other.get(name) is not value}
