"""Sinks are asked again when Flume would ask them, or when events come."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.base import BatchSink, Taken
from spillable_stream.flow.sinks.written import WrittenEvents
from tests.support.waiting import wait_until


class Kept(BatchSink):
    def __init__(self) -> None:
        super().__init__(1)
        self.bodies: list[bytes] = []
        self.failures: list[Exception] = []
        self.closed_by = 0

    def write(self, taken: Taken) -> None:
        if self.failures:
            raise self.failures.pop()
        self.bodies += taken.batch.column(1).to_pylist()

    def close(self) -> None:
        self.closed_by = threading.get_ident()


def test_a_sink_waits_as_in_flume_and_longer_after_a_failure(open_channel: Callable[..., Channel]) -> None:
    channel, sink = open_channel(), Kept()
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.open()
    assert [runner.round() for _ in range(7)] == [1, 2, 3, 4, 5, 5, 5]
    assert runner.finished
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"1"), Event(b"2")])
    sink.failures = [StorageError("no")]
    assert runner.round() == 5
    assert runner.trouble == "StorageError: no"
    assert not runner.finished
    assert [runner.round() for _ in range(4)] == [0, 0, 1, 2]
    assert sink.bodies == [b"1", b"2"]


def test_a_sink_wakes_for_events_and_is_closed_in_its_thread(open_channel: Callable[..., Channel]) -> None:
    channel, sink = open_channel(), Kept()
    runner = SinkRunner([(sink, channel, WrittenEvents())], None, "a1.k1")
    runner.start()
    wait_until(lambda: runner.finished)
    with channel.put_transaction() as tx:
        tx.put(Event(b"1"))
    wait_until(lambda: sink.bodies == [b"1"])
    assert runner.stop(30)
    assert sink.closed_by not in (0, threading.get_ident())


def test_a_sink_that_waits_for_the_note_of_another_one_starts_when_that_is_read_and_is_closed_if_it_never_is(
    open_channel: Callable[..., Channel],
) -> None:
    channel, written, sink, other = open_channel(), WrittenEvents(), Kept(), Kept()
    other.name, other.keeps_note = "a1.k2", True
    runner, before = (SinkRunner([(s, channel, written)], None, s.name) for s in (sink, other))
    before.await_notes()
    with pytest.raises(SpillableError, match=r"a1\.k2 can't be opened yet"):
        runner.start()
    assert runner.stop(0) and sink.closed_by == threading.get_ident()
    before.open()
    runner.start()
    assert runner.alive and runner.stop(30)
    before.await_notes()
    before.begin_stop()
    runner.start()
    assert runner.alive and runner.stop(30)
