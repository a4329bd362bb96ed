"""A producer that never stops, a small channel, and a query that is stopped and started at random."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.integrity.verify import verify
from tests.lab.size import sized
from tests.spark.test_stream import stream
from tests.support.events import take
from tests.support.spark.versions import needs

pytestmark = [pytest.mark.spark, pytest.mark.crash]

CAPACITY = 10_000
_PUT = 500
_TRIGGER_SECONDS = 1.0
_PATIENCE_SECONDS = 300


class Producer(threading.Thread):
    """Puts numbered events, whenever there is room.

    Args:
        channel: where.

    Attributes:
        waits: of each put, when it began and ended, in seconds since 1970.
    """

    def __init__(self, channel: ss.Channel) -> None:
        super().__init__(daemon=True)
        self.channel = channel
        self.waits: list[tuple[float, float]] = []
        self.ended = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for first in itertools.count(0, _PUT):
                if self.ended.is_set():
                    return
                began = time.time()
                with self.channel.put_transaction() as tx:
                    tx.put_many(ss.Event(b"%09d" % i) for i in range(first, first + _PUT))
                self.waits.append((began, time.time()))
        except BaseException as e:
            self.failure = e

    def end(self) -> int:
        """Stop putting, and return how many events were put."""
        self.ended.set()
        self.join(_PATIENCE_SECONDS)
        assert not self.is_alive() and self.failure is None, self.failure
        return _PUT * len(self.waits)


@contextmanager
def producer(path: Path) -> Iterator[Producer]:
    with ss.Channel(path, overflow_capacity=CAPACITY, keep_alive=_PATIENCE_SECONDS) as channel:
        found = Producer(channel)
        found.start()
        try:
            yield found
        finally:
            found.ended.set()


def triggers_of(query: Any) -> list[float]:
    """Return when the triggers of a query began whose batches are done, in seconds since 1970."""
    return [datetime.fromisoformat(p["timestamp"]).timestamp() for p in query.recentProgress]


def until(ready: Any, query: Any) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not ready():
        if failure := query.exception():
            raise failure
        assert time.monotonic() < deadline, query.status
        time.sleep(0.01)


@needs(4, 2, "a source that Spark tells where the next batch begins")
@pytest.mark.timeout(3600)
def test_a_producer_is_never_stalled_for_long_while_its_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    rng, path, target = random.Random(1), tmp_path / "a", tmp_path / "b"
    up: list[tuple[float, float, list[float]]] = []  # from the first batch to the stop, and when triggers began
    with producer(path) as puts:

        def start() -> Any:
            writer = stream(spark, path).writeStream.format("spillable").option("path", str(target))
            writer = writer.trigger(processingTime=f"{_TRIGGER_SECONDS:g} seconds")
            return writer.option("checkpointLocation", str(tmp_path / "ck")).start()

        for _ in range(sized(ci=2, full=100)):
            query = start()
            until(lambda q=query: q.lastProgress and q.lastProgress["numInputRows"], query)
            began = time.time()
            time.sleep(rng.uniform(0, 5))
            until(lambda q=query, began=began: triggers_of(q)[-1] > began, query)  # a busy machine needs longer for it
            ended, triggers = time.time(), triggers_of(query)
            query.stop()
            up.append((began, ended, triggers))
            time.sleep(rng.uniform(0, 1))
        query = start()
        count = puts.end()
        until(lambda: puts.channel.stats().channel_size == 0, query)
        query.stop()
    stalls = [
        sum(max(put_began, began) < trigger < min(put_ended, ended) for trigger in triggers)
        for began, ended, triggers in up
        for put_began, put_ended in puts.waits
    ]
    # A put that waits has room once the next trigger has planned its batch. One more may begin before the put notices.
    assert 1 <= max(stalls) <= 2
    with ss.Channel(target) as channel:
        found = list(itertools.chain.from_iterable(iter(lambda: take(channel, CAPACITY), [])))
    assert found == [b"%09d" % i for i in range(count)]
    assert verify(path).healthy and verify(target).healthy
