from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.errors import OptionError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sink_processors import Failover
from spillable_stream.flow.sinks.null import Null
from spillable_stream.flow.sources.seq import Seq
from spillable_stream.flow.wiring import SinkGroup, Source, wire


def test_each_source_and_sink_has_a_name_of_its_own(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    sources = [Source(Seq(), ChannelProcessor({"c": channel})) for _ in range(2)]
    wired = wire("a1", sources, [Null(channel="c"), Null(channel="c")], [], {})
    assert list(wired.channels) == ["c"]
    assert {name: runner.name for name, runner in wired.sources.items()} == {"seq": "a1.seq", "seq2": "a1.seq2"}
    assert {name: runner.name for name, runner in wired.sinks.items()} == {"null": "a1.null", "null2": "a1.null2"}


def test_the_sinks_of_a_group_run_as_one_and_know_it(open_channel: Callable[..., Channel]) -> None:
    one, two = Null(channel="c"), Null(channel="c")
    group = SinkGroup({"k1": one, "k2": two}, Failover(priority={"k1": 2, "k2": 1}), name="g")
    wired = wire("a1", [], [], [group], {"c": open_channel()})
    assert wired.sinks["g"].sinks == [one, two]
    assert (one.name, one.in_group) == ("a1.k1", True)


def test_a_sink_of_a_channel_that_is_not_there_is_refused(open_channel: Callable[..., Channel]) -> None:
    with pytest.raises(OptionError, match="takes from the channel 'x'; there are c"):
        wire("a1", [], [Null(channel="x")], [], {"c": open_channel()})
