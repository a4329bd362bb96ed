"""Retries by kind of error, what a result tells of them, and idempotence."""

from __future__ import annotations

import random

from spillable_stream import errors
from spillable_stream.producer.config import ProducerConfig
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget, full
from tests.support.producers import wait_for_retry


def test_each_retry_waits_twice_as_long_and_no_longer_than_the_most() -> None:
    config = ProducerConfig.of(
        {"base_retry_backoff_ms": 100, "max_retry_backoff_ms": 1000}, local=True, max_events=10_000
    )
    rng = random.Random(3)
    for retry, longest in [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (6, 1.0), (1000, 1.0)]:
        found = [config.backoff_seconds(retry, rng) for _ in range(200)]
        assert longest / 2 <= min(found) < longest * 0.55 and longest * 0.95 < max(found) <= longest


def test_a_batch_is_tried_again_when_it_is_due_and_not_before(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.fail(*full(2))
    producer = produce(linger_ms=0, base_retry_backoff_ms=1000, rng=NoJitter())
    future = producer.send(b"x")
    wait_for_retry(producer)
    clock.advance(0.999)
    assert len(target.attempts) == 1
    clock.advance(0.001)
    target.wait_for_attempts(2)
    wait_for_retry(producer)
    clock.advance(1.999)
    assert len(target.attempts) == 2
    clock.advance(0.001)
    result = future.result(PATIENCE_SECONDS)
    assert (result.attempt_count, [s for s, _ in target.attempts]) == (3, [1, 2, 3])  # a refusal frees the number
    assert [a.time for a in result.reserved_attempts] == [clock.time() - 3, clock.time() - 2, clock.time()]
    assert [a.error_message for a in result.reserved_attempts] == ["it is full", "it is full", ""]


class NoJitter(random.Random):
    def random(self) -> float:
        return 1.0


def test_after_the_last_retry_the_batch_fails_and_the_latest_attempts_are_told(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.fail_while(lambda sequence: errors.ChannelFullError(f"full at {clock.now:.0f}"))
    producer = produce(linger_ms=0, retries=4, max_reserved_attempts=2)
    future = producer.send(b"x")
    while not future.done():
        clock.advance(1)
    result = future.exception().result  # type: ignore[union-attr]
    assert (result.attempt_count, len(target.attempts), len(result.reserved_attempts)) == (5, 5, 2)
    assert result.error_code == "ChannelFullError" and result.events[0].body == b"x"


def test_retries_of_one_batch_do_not_hold_up_another(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.fail_while(lambda sequence: next(iter(full())) if sequence == 1 else None)
    producer = produce(linger_ms=0)
    first = producer.send(b"first")
    wait_for_retry(producer)
    assert producer.send(b"second").result(PATIENCE_SECONDS).successful
    assert not first.done()
    target.fail_while(lambda sequence: None)
    clock.advance(1)
    assert first.result(PATIENCE_SECONDS).write_order_id == 2


def test_a_batch_whose_answer_was_lost_is_not_stored_twice(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.answer = False
    producer = produce(linger_ms=0)
    future = producer.send(b"x")
    wait_for_retry(producer)
    target.answer = True
    clock.advance(1)
    result = future.result(PATIENCE_SECONDS)
    assert (result.attempt_count, result.write_order_id, target.bodies) == (2, 1, [b"x"])
