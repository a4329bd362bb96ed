"""Room in a full buffer goes to those who wait for it, first come, first served."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from spillable_stream import Producer
from spillable_stream.errors import ProducerClosedError, ProducerTimeoutError
from spillable_stream.producer.event_size import BATCH_BYTES
from spillable_stream.producer.room import RoomQueue, Waiter
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget


def test_room_is_given_in_order_and_not_past_who_needs_more() -> None:
    room, woken = RoomQueue(), list[int]()
    waiters = [Waiter(size, lambda size=size: woken.append(size)) for size in (10, 20, 500, 30)]  # type: ignore[misc]
    for waiter in waiters:
        room.waiters[waiter] = None
    room.give(100)
    assert (woken, list(room.waiters), room.given_bytes()) == ([10, 20], waiters[2:], 30)
    room.give(529)
    assert woken == [10, 20], "what was given is not free"
    room.given.clear()
    room.give(529)
    assert (woken, list(room.waiters)) == ([10, 20, 500], waiters[3:])


def test_room_is_given_for_a_batch_of_each_and_the_last_one_may_exceed_it() -> None:
    room = RoomQueue(batch_bytes=100)
    for _ in range(4):
        room.waiters[Waiter(10, lambda: None)] = None
    room.give(230)
    assert (len(room.given), room.given_bytes()) == (3, 330)
    room.give(331)
    assert len(room.given) == 3


def test_a_large_event_does_not_starve_among_small_ones(produce: MakeProducer, target: FakeTarget) -> None:
    """Room for one small event becomes free again and again; before, a small one took it each time."""
    target.hold()
    each = 200 + BATCH_BYTES
    producer = produce(total_size_in_bytes=5 * each, max_block_ms=-1, batch_count_threshold=1)
    for _ in range(5):
        producer.send(b"s" * 136)  # it is full
    with ThreadPoolExecutor(20) as pool:
        large = _waiting(pool, producer, b"L" * (5 * each - 164))
        small = [_waiting(pool, producer, b"s" * 136) for _ in range(5)]
        target.let_go()
        for future in (large, *small):
            future.result(PATIENCE_SECONDS)
    producer.flush(PATIENCE_SECONDS)
    assert [body[:1] for body in target.bodies] == [b"s"] * 5 + [b"L"] + [b"s"] * 5


def _waiting(pool: ThreadPoolExecutor, producer: Producer, body: bytes) -> Future[Any]:
    """Return a send that waits for room, once it does."""
    room = producer._pipeline.buffer.room
    before = len(room.waiters)
    future = pool.submit(producer.send, body)
    while len(room.waiters) == before:
        assert not future.done()
    return future


def test_who_must_not_wait_is_refused_while_others_wait(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=-1)
    producer.send(b"x" * 400)
    with ThreadPoolExecutor(1) as pool:
        large = _waiting(pool, producer, b"L" * 900)
        with pytest.raises(ProducerTimeoutError, match="and 1 other send is waiting for room"):
            producer.send(b"s", max_block_ms=0)
        target.let_go()
        large.result(PATIENCE_SECONDS)


def test_whose_wait_is_over_makes_place_for_the_next(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000 + BATCH_BYTES, max_block_ms=5000)
    producer.send(b"x" * 400)
    with ThreadPoolExecutor(2) as pool:
        large = _waiting(pool, producer, b"L" * (BATCH_BYTES + 900))
        clock.advance(4)
        small = _waiting(pool, producer, b"s")
        clock.advance(2)
        assert isinstance(large.exception(PATIENCE_SECONDS), ProducerTimeoutError)
        small.result(PATIENCE_SECONDS)  # nothing became free: it only stood behind
    assert not target.stored


def test_open_batches_fill_up_while_others_may_end_and_give_room(produce: MakeProducer, target: FakeTarget) -> None:
    """Before, each send that waited had them shipped, small as they were."""
    target.hold()
    producer = produce(total_size_in_bytes=3000, max_block_ms=-1, batch_count_threshold=2, linger_ms=60_000)
    producer.send(b"a" * 400)
    producer.send(b"b" * 400)
    target.wait_for_attempts(1)
    producer.send(b"c" * 400)
    with ThreadPoolExecutor(1) as pool:
        waiting = _waiting(pool, producer, b"d" * 900)
        assert producer.stats().queued_batches == 2 and len(target.attempts) == 1
        target.let_go()
        waiting.result(PATIENCE_SECONDS).result(PATIENCE_SECONDS)
    assert [[body[:1] for body in bodies] for _, bodies in target.attempts] == [[b"a", b"b"], [b"c", b"d"]]


def test_open_batches_are_shipped_for_a_send_that_waits_where_others_do_not_end(
    produce: MakeProducer, clock: FakeClock
) -> None:
    stuck, good = FakeTarget(name="stuck"), FakeTarget(name="good")
    stuck.hold()
    options = {"total_size_in_bytes": 3000, "max_block_ms": -1, "batch_count_threshold": 2, "linger_ms": 60_000}
    producer = produce({"stuck": stuck, "good": good}, io_thread_count=2, **options)
    producer.send(b"a" * 400, key="stuck")
    producer.send(b"b" * 400, key="stuck")
    stuck.wait_for_attempts(1)
    producer.send(b"c" * 400, key="good")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(producer.send, b"d" * 700, key="good")
        while producer._pipeline.buffer.out_of_patience_at is None:
            assert not waiting.done()
        assert not good.attempts
        clock.advance(0.03)
        waiting.result(PATIENCE_SECONDS)
    assert good.bodies == [b"c" * 400]
    stuck.let_go()


def test_open_batches_are_shipped_for_a_send_that_found_no_room_and_did_not_wait(
    produce: MakeProducer, target: FakeTarget
) -> None:
    """Or whoever sends so until there is room would send for as long as a batch lingers."""
    producer = produce(total_size_in_bytes=1000, linger_ms=60_000)
    sent = producer.send(b"a" * 400)
    with pytest.raises(ProducerTimeoutError):
        producer.send(b"b" * 700, max_block_ms=0)
    assert sent.result(PATIENCE_SECONDS).successful
    producer.flush(PATIENCE_SECONDS)
    producer.send(b"b" * 700, max_block_ms=0)


def test_a_close_ends_all_waits(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=-1)
    producer.send(b"x" * 900)
    with ThreadPoolExecutor(3) as pool:
        waiting = [_waiting(pool, producer, b"y" * 900) for _ in range(3)]
        with pytest.raises(ProducerTimeoutError):
            producer.close(0)
        for future in waiting:
            assert isinstance(future.exception(PATIENCE_SECONDS), ProducerClosedError)
