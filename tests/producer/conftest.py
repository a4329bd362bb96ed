"""Producers on targets that a test controls; after each test nothing may be left of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from spillable_stream import Producer
from spillable_stream.errors import ProducerError
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget

MakeProducer = Callable[..., Producer]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def target() -> FakeTarget:
    return FakeTarget()


@pytest.fixture
def produce(clock: FakeClock, target: FakeTarget) -> Iterator[MakeProducer]:
    """Make producers for `target`, or for others; each is closed, and what it held must be free then."""
    made: list[Producer] = []

    def produce(to: Any = None, **config: Any) -> Producer:
        given = {"clock": clock, "rng": random.Random(1), "context_headers": False, "io_thread_count": 1, **config}
        made.append(Producer(target if to is None else to, **given))
        return made[-1]

    yield produce
    target.let_go()
    for producer in made:
        with suppress(ProducerError):
            producer.close()
        assert_nothing_left(producer)


def assert_nothing_left(producer: Producer) -> None:
    """Assert that every batch has ended, that no memory is held, and that the threads are gone."""
    pipeline = producer._pipeline
    assert not pipeline.buffer.batches
    stats = producer.stats()
    assert (stats.queued_bytes, stats.queued_batches, stats.retrying_batches) == (0, 0, 0)
    assert stats.sent_events == stats.stored_events + stats.dead_letter_events + stats.failed_events
    for thread in pipeline.threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), thread.name
