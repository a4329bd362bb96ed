"""How much memory all batches hold, and what a wait for room leaves behind."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spillable_stream import Producer
from spillable_stream.errors import ProducerTimeoutError
from spillable_stream.producer.event_size import BATCH_BYTES, BODY_BYTES, JOINED_BYTES, TINY_BODY_BYTES
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.interrupts import Interrupts


@pytest.mark.timeout(120)
def test_an_interrupt_anywhere_of_a_wait_leaves_the_queue_and_takes_no_room() -> None:
    number, hit = 0, True
    while hit:
        number += 1
        target = FakeTarget()
        target.hold()
        producer = Producer(target, total_size_in_bytes=1000, batch_count_threshold=1, context_headers=False)
        producer.send(b"x" * 900)
        buffer = producer._pipeline.buffer
        wait = buffer._clock.wait

        def let_go(*arguments: Any, wait: Any = wait, target: FakeTarget = target) -> None:
            target.let_go()
            wait(*arguments)

        buffer._clock.wait = let_go  # type: ignore[method-assign]
        interrupts = Interrupts(number, "producer/accumulator.py", "producer/buffer.py", "producer/room.py")
        interrupts.run(lambda: producer.send(b"y" * 900))  # noqa: B023
        hit = interrupts.hit
        target.let_go()
        producer.send(b"z" * 900).result(PATIENCE_SECONDS)
        producer.flush(PATIENCE_SECONDS)
        assert not buffer.room.waiters and not buffer.room.given
        assert buffer.held_bytes == 0
        producer.close(PATIENCE_SECONDS)
    assert number > 20


def test_memory_is_never_held_beyond_its_bound(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(total_size_in_bytes=10_000, batch_count_threshold=7, linger_ms=0, io_thread_count=3)
    seen: list[int] = []
    rng = random.Random(2)
    for _ in range(500):
        producer.send(b"x" * rng.randrange(2000))
        seen.append(producer.stats().queued_bytes)
    producer.flush(PATIENCE_SECONDS)
    assert max(seen) <= 10_000 + BATCH_BYTES and len(target.bodies) == 500


def test_batches_of_one_small_event_fill_the_buffer_and_the_last_one_may_exceed_it(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=3 * BATCH_BYTES, batch_count_threshold=1, max_block_ms=0)
    for _ in range(3):
        producer.send(b"x")
    with pytest.raises(ProducerTimeoutError):
        producer.send(b"x")
    assert producer.stats().queued_bytes == 3 * (BATCH_BYTES + TINY_BODY_BYTES)


def test_an_event_as_large_as_the_buffer_is_accepted_when_nothing_else_is_held(
    produce: MakeProducer, target: FakeTarget
) -> None:
    producer = produce(total_size_in_bytes=1000, linger_ms=0, batch_size_threshold_in_bytes=1000)
    each = b"x" * ((1000 - JOINED_BYTES) // 2 - BODY_BYTES)
    for send in (lambda: producer.send(b"x" * (1000 - BODY_BYTES)), lambda: producer.send_many([each] * 2)):
        assert send().result(PATIENCE_SECONDS).successful
        producer.flush(PATIENCE_SECONDS)
