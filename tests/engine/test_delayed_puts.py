"""The delayed events of a put, before they are in side files."""

from __future__ import annotations

from collections.abc import Callable

from spillable_stream import Channel
from spillable_stream.engine.delayed_puts import DelayedPuts
from spillable_stream.engine.put_request import Put
from tests.support.delays import chunk, deliveries_of

Open = Callable[..., Channel]


def test_events_that_wait_do_not_fit_memory(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=1, byte_capacity=1 << 20)
    request = Put([], delayed=DelayedPuts(deliveries_of(channel).files, [chunk(0, 1), chunk(0, 2)]))
    assert request.too_large(channel.engine().state, channel.path)


def test_what_waits_has_a_size(open_channel: Open) -> None:
    puts = DelayedPuts(deliveries_of(open_channel()).files, [chunk(0, 1, 8), chunk(0, 2, 16)])
    assert puts.use() == (2, 24)
    assert puts.size_bytes() == 4 * 48 + 2 * 8 + 24
