"""What an agent runs, by name: its channels with what their sinks share, and the runners of sources and sinks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from spillable_stream.channel.channel import Channel
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.late_channel import LateChannel
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.source_runners import EventRunner, PolledRunner
from spillable_stream.flow.surroundings import REAL

__all__ = ["AgentChannel", "AgentChannels", "Wired", "agent_channel", "open_late"]

_START_SECONDS = 15.0  # for which the others wait for an optional channel that is being opened
_SIGNAL_SECONDS = 0.2  # within which a signal is noticed
_AS_THEY_COME = EventTimes()
_T = TypeVar("_T")


class AgentChannel(NamedTuple):
    """A channel of an agent.

    Args:
        channel: the open channel.
        written: what its sinks have written and not committed.
        start_time_ms: since when the agent has it, in milliseconds since 1970.
        times: the times of events that come into it.
        spool: the directory of the spool in front of it, as its configuration says; "" for none.
    """

    channel: Channel
    written: WrittenEvents
    start_time_ms: int
    times: EventTimes
    spool: str = ""

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


AgentChannels = Mapping[str, AgentChannel]
"""The open channels of an agent by name."""


def agent_channel(channel: Channel, times: EventTimes = _AS_THEY_COME) -> AgentChannel:
    """Return an open channel as that of an agent, from now on.

    Args:
        channel: the channel.
        times: the times of events that come into it.
    """
    return AgentChannel(channel, WrittenEvents(), REAL.now_ms(), times)


def open_late(channels: AgentChannels, must_stop: Callable[[], bool]) -> None:
    """Open optional channels, and wait for that a while; those that are not open by then are opened in the background.

    Args:
        channels: the channels; those that are open stay so.
        must_stop: whether to wait no longer.
    """
    every: list[object] = [one.channel for one in channels.values()]
    late = [channel for channel in every if isinstance(channel, LateChannel)]
    for channel in late:
        channel.begin()
    end = time.monotonic() + _START_SECONDS
    for channel in late:
        channel.wait(end, must_stop, _SIGNAL_SECONDS)


class Wired(NamedTuple):
    """What an agent runs, by name.

    Args:
        channels: the channels.
        sources: the runners of sources.
        sinks: the runners of sinks and of groups of sinks.
    """

    channels: Mapping[str, AgentChannel] = {}
    sources: Mapping[str, PolledRunner | EventRunner] = {}
    sinks: Mapping[str, SinkRunner] = {}

    def without(self, other: Wired) -> Wired:
        """Return what of this is not the same thing in another one."""
        return Wired(
            _without(self.channels, other.channels),
            _without(self.sources, other.sources),
            _without(self.sinks, other.sinks),
        )


def _without(of: Mapping[str, _T], other: Mapping[str, _T]) -> dict[str, _T]:
    return {name: value for name, value in of.items() if other.get(name) is not value}
