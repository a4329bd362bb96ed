"""The division of a flow: a short name of all that a configuration says of where a stream's events go.

It is made of texts of the file, and never of what this version makes of them: channels remember it, and an upgrade of
the package must not change it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from spillable_stream.flow.configuration.channel_times import time_properties
from spillable_stream.flow.configuration.model import ComponentConfig, SourceConfig, described
from spillable_stream.flow.open_channel import arguments_on_host
from spillable_stream.spark.local_path import absolute
from spillable_stream.spark.sink.division import digest

__all__ = ["flow_division", "place_of"]


def flow_division(agent: str, source: SourceConfig, channels: Sequence[ComponentConfig]) -> str:
    """Return a name that no other interceptors, selector, channels, or times or places of channels have.

    Args:
        agent: the agent's name.
        source: the source.
        channels: its channels, that of its dead letters among them.
    """
    of_channels = [[one.name, place_of(agent, one), sorted(time_properties(one).items())] for one in channels]
    steps = [described(component) for component in (*source.interceptors, source.selector)]
    return f"flow-{digest([json.dumps([steps, source.channels, source.dead_letter, of_channels])])}"


def place_of(agent: str, channel: ComponentConfig) -> str:
    """Return where a channel of an agent is: its directory, or its address in a store."""
    return absolute(arguments_on_host(agent, channel, {}).path)
