"""A producer beside a full, a slow and a dead destination, for long: the others keep flowing, and memory stays flat."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, Producer, Result
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.schedule import SLOW_SECONDS
from tests.lab.size import sized
from tests.producer.conftest import assert_nothing_left
from tests.support.fake_targets import FakeTarget

pytestmark = pytest.mark.crash

BUFFER_BYTES = 8 << 20
GROWTH_BYTES = 24 << 20
_PATIENCE_SECONDS = 120
_EVENTS = 100
_PENDING = 50
_HEALTHY = ("healthy 1", "healthy 2")
_BAD = ("full", "slow", "dead")


class Slow(FakeTarget):
    """Takes its time, now and then much of it, and remembers no more than the numbers of the batches."""

    def __init__(self) -> None:
        super().__init__(name="slow")
        self.sent: list[int] = []

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
        time.sleep(0.02 if len(self.sent) % 20 else 1.5 * SLOW_SECONDS)
        self.sent.append(number_of(batch.column("body")[0].as_py()))
        return 1, batch.num_rows


class Dead(FakeTarget):
    """Lets nobody in, and takes a while for it."""

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
        time.sleep(0.05)
        raise ConnectionError("nobody is there")


def number_of(body: bytes) -> int:
    return int(body.split()[0])


class Soak:
    """Sends numbered batches, and notes of each how often it was told of, how it ended, and how often it is stored."""

    def __init__(self, producer: Producer, channels: dict[str, Channel], slow: Slow) -> None:
        self.producer = producer
        self.channels = channels
        self.slow = slow
        self.pending: dict[str, list[SendFuture]] = {key: [] for key in _BAD}
        self.told, self.successful, self.stored = bytearray(), bytearray(), bytearray()

    def send(self, key: str) -> SendFuture:
        number = len(self.told)
        for noted in (self.told, self.successful, self.stored):
            noted.append(0)

        def callback(result: Result) -> None:
            self.told[number] += 1
            self.successful[number] = result.successful

        return self.producer.send_many([b"%d %s" % (number, b"x" * 100)] * _EVENTS, key=key, callback=callback)

    def round(self) -> None:
        """Send to all, and wait for the healthy ones only; of the others each always has something to do."""
        for key, pending in self.pending.items():
            pending[:] = [future for future in pending if not future.done()]
            if len(pending) < _PENDING:
                pending.append(self.send(key))
        futures = [self.send(key) for key in _HEALTHY for _ in range(5)]
        for future in futures:
            assert future.result(_PATIENCE_SECONDS).successful
        for key in _HEALTHY:
            self.take(key)
        assert (
            self.producer.stats().queued_bytes <= BUFFER_BYTES * 1.1
        )  # what attempts and reasons hold waits for no room

    def take(self, key: str) -> None:
        """Take what is in a channel, and note the batches that are whole."""
        events: list[Event] = []
        with self.channels[key].take_transaction() as tx:
            while found := tx.take_many(1_000):
                events += found
        numbers = [number_of(event.body) for event in events if event.body != b"before"]
        for number in set(numbers):
            assert numbers.count(number) == _EVENTS
            self.stored[number] += 1


@contextmanager
def soaking(path: Path) -> Iterator[Soak]:
    with ExitStack() as stack:
        channels = {key: stack.enter_context(Channel(path / key)) for key in _HEALTHY}
        full = Channel(path / "full", overflow_capacity=_EVENTS, keep_alive=600, minimum_required_space=0)
        channels["full"] = stack.enter_context(full)
        with full.put_transaction() as tx:
            tx.put_many([Event(b"before")] * _EVENTS)
        slow = Slow()
        producer = Producer(
            {**channels, "slow": slow, "dead": Dead(name="dead")},
            total_size_in_bytes=BUFFER_BYTES,
            io_thread_count=2,
            batch_count_threshold=_EVENTS,
            retries=3,
            base_retry_backoff_ms=20,
        )
        try:
            yield Soak(producer, channels, slow)
        finally:
            producer.close(_PATIENCE_SECONDS)


def resident_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@pytest.mark.timeout(1800)
def test_the_healthy_keep_flowing_beside_a_full_a_slow_and_a_dead_destination(path: Path) -> None:
    rounds, others = sized(240, 10_000), set(threading.enumerate())
    with soaking(path) as soak:
        for _ in range(rounds // 2):  # until what grows only once has grown
            soak.round()
        began_bytes, threads = resident_bytes(), set(threading.enumerate()) - others
        for _ in range(rounds // 2):
            soak.round()
        grown_bytes = resident_bytes() - began_bytes
        assert set(threading.enumerate()) - others == threads
        with ThreadPoolExecutor(1) as pool:
            closing = pool.submit(soak.producer.close, _PATIENCE_SECONDS)
            while not closing.done():  # the full one empties
                soak.take("full")
        closing.result()
        assert_nothing_left(soak.producer)
        for key in soak.channels:
            soak.take(key)
    for number in soak.slow.sent:
        soak.stored[number] += 1
    assert set(soak.told) == {1}, "every send ended once"
    assert soak.stored == soak.successful, "and was stored once where it was successful, else not at all"
    assert sum(soak.successful) >= rounds * len(_HEALTHY) * 5
    assert 0 in soak.successful and soak.slow.sent
    assert grown_bytes < GROWTH_BYTES, f"{grown_bytes:,} bytes more"
