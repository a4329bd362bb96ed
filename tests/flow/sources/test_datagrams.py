from __future__ import annotations

import asyncio
import socket
import sys
import threading

import pyarrow as pa
import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.sources.datagrams import Datagram, DatagramSource
from spillable_stream.flow.sources.event_columns import events_of
from spillable_stream.flow.sources.held import put_held
from tests.support.flow_processors import KeptBatches, Routed
from tests.support.waiting import wait_until


class Kept(DatagramSource):
    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)
        self.batches: list[list[Datagram]] = []

    async def events(self, datagrams: list[Datagram]) -> pa.RecordBatch:
        self.batches.append(datagrams)
        if datagrams[0].data == b"bad":
            raise RuntimeError("a bug")
        return events_of([d.data for d in datagrams], [{}] * len(datagrams))


def test_what_is_there_is_one_batch_and_a_failure_does_not_end_the_source() -> None:
    source = Kept()
    source.start(KeptBatches())
    try:
        assert source.alive
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            for data in (b"bad", b"good"):
                s.sendto(data, ("127.0.0.1", source.port))
                wait_until(lambda data=data: source.batches and source.batches[-1][-1].data == data)
        assert {d.sender for batch in source.batches for d in batch} == {"127.0.0.1"}
        assert source.counters.generic_processing_fail == 1
        other = Kept()
        other._address = ("127.0.0.1", source.port)
        with pytest.raises(StorageError, match="can't listen"):
            other.start(KeptBatches())
    finally:
        source.stop()
    assert not source.alive


def test_a_stop_takes_what_had_come_before_it() -> None:
    class Slow(Kept):
        async def events(self, datagrams: list[Datagram]) -> pa.RecordBatch:
            taking.set()
            await self.in_thread(lambda: go_on.wait(60))
            return await super().events(datagrams)

    taking, go_on, source = threading.Event(), threading.Event(), Slow()
    source.start(KeptBatches())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"1", ("127.0.0.1", source.port))
        assert taking.wait(60)
        for data in (b"2", b"3"):
            s.sendto(data, ("127.0.0.1", source.port))
        stop = threading.Thread(target=source.stop)
        stop.start()
        wait_until(source._stopping.is_set)
        go_on.set()
        stop.join(60)
    assert [[d.data for d in batch] for batch in source.batches] == [[b"1"], [b"2", b"3"]]


def test_what_comes_behind_a_batch_that_could_not_be_stored_keeps_its_place() -> None:
    kept, source = KeptBatches(), Kept()
    kept.full = {0}
    source.start(kept)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"1", ("127.0.0.1", source.port))
        wait_until(lambda: source.counters.channel_write_fail > 0)
        s.sendto(b"2", ("127.0.0.1", source.port))
        source.stop()
    kept.full = set()
    assert source.unstored.events == 2
    source.start(kept)
    wait_until(lambda: kept.bodies() == [b"1", b"2"])
    source.stop()


def test_what_comes_first_waits_for_what_the_source_before_held() -> None:
    kept, source, holds, go_on = KeptBatches(), Kept(), threading.Event(), threading.Event()
    deliver, stopping = kept.deliver, threading.Event()
    stopping.set()
    kept.full = {0}
    put_held(source, kept, events_of([b"1"], [{}]), stopping)
    kept.full = set()

    def wait_and_deliver(routed: Routed) -> None:
        holds.set()
        assert go_on.wait(60)
        deliver(routed)

    kept.deliver = wait_and_deliver  # type: ignore[method-assign]
    source.start(kept)
    assert holds.wait(60)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"2", ("127.0.0.1", source.port))
    for _ in range(10):
        source._call(asyncio.sleep(0))
    assert source.counters.event_received_count == 1 and not source.batches, "it has not been read"
    go_on.set()
    wait_until(lambda: kept.bodies() == [b"1", b"2"])
    source.stop()


def test_an_interceptor_that_exits_ends_no_source_and_loses_nothing_also_of_the_source_before() -> None:
    """The source took no datagram any more, could not be stopped, and kept its port."""

    class Exits(KeptBatches):
        exits = True

        def deliver(self, routed: Routed) -> None:
            if self.exits:
                sys.exit("a mistake")
            super().deliver(routed)

    source, kept = Kept(), Exits()
    source.start(kept)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"1", ("127.0.0.1", source.port))
        wait_until(lambda: source.counters.generic_processing_fail)
        source.stop()
        before, source = source, Kept()
        assert source.succeed(before, is_at_end=False)
        source.start(kept)
        s.sendto(b"2", ("127.0.0.1", source.port))
        wait_until(lambda: source.counters.generic_processing_fail)
        kept.exits = False
        wait_until(lambda: kept.bodies() == [b"1", b"2"])
    source.stop()
