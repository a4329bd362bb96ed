from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel, Event
from spillable_stream.flow.sinks.null import Null
from spillable_stream.flow.sources.base import Status


def test_events_are_taken_and_their_number_is_logged(
    open_channel: Callable[..., Channel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spillable_stream.flow")
    channel, sink = open_channel(), Null(batch_size=3, log_every_n_events=5)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"x")] * 7)
    sink.open(channel)
    while sink.process() is Status.READY:
        pass
    assert channel.stats().channel_size == 0
    assert [r.getMessage() for r in caplog.records] == ["Null: took 6 events"]
    assert sink.found_nothing
