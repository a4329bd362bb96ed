"""A clock that raises, and waits that are too long."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spillable_stream.producer.clock import Clock
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget, full
from tests.support.producers import assert_it_goes_on

HUGE = 2**63 - 1


def test_waits_that_are_longer_than_the_system_can_wait_end_nothing(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(*full(1))
    config = {"linger_ms": HUGE, "max_block_ms": HUGE, "base_retry_backoff_ms": HUGE, "max_retry_backoff_ms": HUGE}
    producer = produce(clock=Clock(), **config)
    future = producer.send(b"x")
    flushing = threading.Thread(target=lambda: producer.flush(1e300))
    flushing.start()
    while not producer.stats().retrying_batches:
        pass
    assert producer.stats().state == "running"
    producer.close(PATIENCE_SECONDS)  # which tries it once more
    flushing.join(PATIENCE_SECONDS)
    assert future.result(1e300).attempt_count == 2 and not flushing.is_alive()


class BrokenClock(Clock):
    def __init__(self, method: str) -> None:
        self._method = method

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name == self._method:
            raise ValueError("no time")
        return super().__getattribute__(name)


@pytest.mark.parametrize("method", ["monotonic", "time", "wait"])
def test_a_clock_that_raises_is_replaced_by_the_machines(
    produce: MakeProducer, target: FakeTarget, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    target.fail(*full(1))
    producer = produce(clock=BrokenClock(method), linger_ms=1, base_retry_backoff_ms=1)
    assert producer.send(b"x").result(PATIENCE_SECONDS).attempt_count == 2
    assert_it_goes_on(producer)
    assert [r.message for r in caplog.records] == ["the clock of a producer raised; the machine's is used instead"]
