from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.flow.sinks.logger import Logger


def test_events_are_logged_as_flume_does(
    open_channel: Callable[..., Channel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spillable_stream.flow.events")
    channel, sink = open_channel(), Logger(max_bytes_to_log=12)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"Hello world!\r", {"a": "1", "b": "2"}), Event(b"\x00"), Event(b"")])
    sink.open(channel)
    sink.process()
    assert [r.getMessage() for r in caplog.records] == [
        "Event: { headers:{a=1, b=2} body: 48 65 6C 6C 6F 20 77 6F 72 6C 64 21             Hello world! }",
        "Event: { headers:{} body: 00                                              . }",
        "Event: { headers:{} body: }",
    ]


def test_rows_of_a_typed_channel_are_logged_as_they_are(
    open_channel: Callable[..., Channel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spillable_stream.flow.events")
    channel, sink = open_channel(schema=pa.schema([("n", pa.int64())])), Logger()
    with channel.put_transaction() as tx:
        tx.put({"n": 7})
    sink.open(channel)
    sink.process()
    assert caplog.records[0].getMessage() == "Event: {'n': 7}"
