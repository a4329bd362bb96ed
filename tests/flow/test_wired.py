from __future__ import annotations

from collections.abc import Callable

from spillable_stream import Channel, Event
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.null import Null
from spillable_stream.flow.source_runners import source_runner
from spillable_stream.flow.sources.seq import Seq
from spillable_stream.flow.wired import Wired, agent_channel
from tests.support.flow_processors import KeptBatches


def test_what_is_the_same_thing_in_two_is_left_out(open_channel: Callable[..., Channel]) -> None:
    opened, source = agent_channel(open_channel()), source_runner(Seq(), KeptBatches(), "r1")
    before, after = (SinkRunner([(Null(), *opened.of_sinks)], None, "k1") for _ in range(2))
    old = Wired({"c1": opened}, {"r1": source, "r2": source}, {"k1": before})
    new = Wired({"c1": opened}, {"r1": source}, {"k1": after, "k2": after})
    assert old.without(new) == Wired({}, {"r2": source}, {"k1": before})
    assert new.without(old) == Wired({}, {}, {"k1": after, "k2": after})
    assert new.without(Wired()) == new


def test_a_channel_tells_what_its_sinks_have_not_committed(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    with channel.put_transaction() as transaction:
        transaction.put_many([Event(b"1"), Event(b"2")])
    opened = agent_channel(channel)
    assert opened.lag_events() == 2
    with channel.take_transaction("default") as take:
        take.take()
    assert opened.lag_events() == 1
